"""The read queries. Portable between SQLite and PostgreSQL."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    LargeBinary,
    Row,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    delete,
    exists,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
    text,
)

from app.schema.errors import NotFound
from app.storage.now import now_ms
from app.storage.session_head import SESSION_JSON
from app.storage.statements import newest_answered
from app.storage.tables import (
    APPROVAL,
    COUNTER,
    DIRECTORY_STATE,
    EVENT,
    IMPORTED_SESSION,
    LEASE,
    MESSAGE,
    PART,
    PENDING_REQUEST,
    PROJECT,
    QUEUED_PROMPT,
    REPLICA,
    SESSION,
    SHARE,
    STEP_USAGE,
    USAGE,
    USER,
    USER_KEY,
    WEBHOOK,
)

# Sessions.


class UnknownAnchor(NotFound):
    """Of a page that begins beside it."""

    def __init__(self, anchor: str) -> None:
        super().__init__(f"{anchor} is not there any more")


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """`updated_since` in epoch milliseconds; `limit` None for all; `before`: only what was created before the session of that
    sequence. `path`: only what is there or below."""

    project_id: str
    directory: str | None = None
    roots_only: bool = False
    updated_since: float | None = None
    search: str | None = None
    limit: int | None = None
    parent_id: str | None = None
    owner: str | None = None
    """None: whoever they belong to."""
    path: str | None = None
    before: int | None = None


def session_body(connection: Connection, session_id: str) -> str | None:
    return connection.execute(_SESSION_BODY, {"id": session_id}).scalar_one_or_none()


_ONE_SESSION = select(SESSION_JSON).where(SESSION.c.id == bindparam("id"))
_SESSION_BODY = _ONE_SESSION


def session_and_diff_basis(connection: Connection, session_id: str) -> Row[Any] | None:
    return connection.execute(_SESSION_AND_DIFF_BASIS, {"id": session_id}).one_or_none()


_SESSION_AND_DIFF_BASIS = _ONE_SESSION.add_columns(SESSION.c.diff_basis)


def session_bodies(connection: Connection, wanted: SessionFilter) -> list[str]:
    """Newest created first."""
    return list(connection.execute(_sessions(wanted, SESSION_JSON)).scalars())


def session_page(connection: Connection, wanted: SessionFilter) -> tuple[list[str], int | None]:
    """The same up to a limit, and where the next page begins, if there is one."""
    assert wanted.limit is not None
    rows = connection.execute(_sessions(replace(wanted, limit=wanted.limit + 1), SESSION_JSON, SESSION.c.seq)).all()
    page = rows[: wanted.limit]
    return [row.body for row in page], page[-1].seq if len(rows) > wanted.limit else None


def _sessions(wanted: SessionFilter, *columns: ColumnElement[Any]) -> Select[Any]:
    query = select(*columns).where(SESSION.c.project_id == wanted.project_id).order_by(SESSION.c.seq.desc())
    query = query.where(*_conditions(wanted.directory, wanted.roots_only, wanted.updated_since, wanted.search, wanted.owner))
    if wanted.path is not None:
        query = query.where(_at_or_below(wanted.path))
    if wanted.parent_id is not None:
        query = query.where(SESSION.c.parent_id == wanted.parent_id)
    if wanted.before is not None:
        query = query.where(SESSION.c.seq < wanted.before)
    if wanted.limit is not None:
        query = query.limit(wanted.limit)
    return query


def _conditions(
    directory: str | None, roots_only: bool, updated_since: float | None, search: str | None, owner: str | None
) -> Iterator[ColumnElement[bool]]:
    if directory is not None:
        yield SESSION.c.directory == directory
    if roots_only:
        yield SESSION.c.parent_id.is_(None)
    if owner is not None:
        yield from (SESSION.c.owner == owner, SESSION.c.owner != literal_column("''"))
    if updated_since is not None:
        yield SESSION.c.updated >= literal(updated_since, Float)
    if search:
        title = fold(search)
        yield SESSION.c.title_folded.contains(title, autoescape=True) if title else false()


def _at_or_below(path: str) -> ColumnElement[bool]:
    return or_(SESSION.c.path == path, _begins_with(SESSION.c.path, f"{path}/"))


def _begins_with(column: ColumnElement[str], beginning: str) -> ColumnElement[bool]:
    """Case counts, as SQLite's LIKE does not have it."""
    return func.substr(column, 1, len(beginning)) == beginning


@dataclass(frozen=True, slots=True)
class AllSessionsFilter:
    """`directories`: only those in one of them; None for any. `updated_before` and `updated_since` in epoch milliseconds."""

    limit: int
    directories: Collection[str] | None = None
    roots_only: bool = False
    updated_since: float | None = None
    updated_before: float | None = None
    search: str | None = None
    archived: bool = False
    owner: str | None = None


def directories_of_sessions(connection: Connection, owner: str | None) -> list[str]:
    query = select(SESSION.c.directory).distinct().where(*_conditions(None, False, None, None, owner))
    return list(connection.execute(query).scalars())


def updated_sessions(connection: Connection, wanted: AllSessionsFilter) -> tuple[Sequence[Row[Any]], int | None]:
    """Of all projects, the newest updated first, each with its `project_id`; and the time before which those of the next page
    were updated. Those of one millisecond stand on one page: a page of them alone may have more than the limit."""
    query = _updated_sessions(wanted)
    rows = connection.execute(query.limit(wanted.limit + 1)).all()
    if len(rows) <= wanted.limit:
        return rows, None
    begun = rows[-1].updated
    page = [row for row in rows if row.updated != begun] or connection.execute(query.where(SESSION.c.updated == begun)).all()
    return page, page[-1].updated


def _updated_sessions(wanted: AllSessionsFilter) -> Select[Any]:
    query = select(SESSION_JSON, SESSION.c.project_id, SESSION.c.updated)
    query = query.order_by(SESSION.c.updated.desc(), SESSION.c.seq.desc())
    query = query.where(*_conditions(None, wanted.roots_only, wanted.updated_since, wanted.search, wanted.owner))
    if wanted.directories is not None:
        query = query.where(SESSION.c.directory.in_(wanted.directories))
    if wanted.updated_before is not None:
        query = query.where(SESSION.c.updated < literal(wanted.updated_before, Float))
    return query if wanted.archived else query.where(~SESSION.c.archived)


def bodies_of_projects(connection: Connection, project_ids: Collection[str]) -> list[str]:
    return list(connection.execute(select(PROJECT.c.body).where(PROJECT.c.id.in_(project_ids))).scalars())


@dataclass(frozen=True, slots=True)
class SessionRange:
    """`limit` sessions beside the one with the id `anchor`, as MessageRange has it; of all projects, or as it says."""

    limit: int
    newest_first: bool = True
    anchor: str | None = None
    newer: bool = False
    project_id: str | None = None
    directory: str | None = None
    path: str | None = None
    """Only what is there or below."""
    search: str | None = None
    owner: str | None = None
    """None: whoever they belong to."""


def session_range(connection: Connection, wanted: SessionRange) -> list[str]:
    """The bodies, in the order wanted. Raises UnknownAnchor."""
    query, newer = select(SESSION_JSON), not wanted.newest_first
    if wanted.anchor is not None:
        newer = wanted.newer
        seq = connection.execute(select(SESSION.c.seq).where(SESSION.c.id == wanted.anchor)).scalar_one_or_none()
        if seq is None:
            raise UnknownAnchor(wanted.anchor)
        query = query.where(SESSION.c.seq > seq if newer else SESSION.c.seq < seq)
    if wanted.project_id is not None:
        query = query.where(SESSION.c.project_id == wanted.project_id)
    if wanted.directory is not None:
        query = query.where(SESSION.c.directory == wanted.directory)
    if wanted.path is not None:
        query = query.where(_at_or_below(wanted.path))
    if wanted.search:
        query = query.where(SESSION.c.title_folded.contains(fold(wanted.search), autoescape=True))
    if wanted.owner is not None:
        query = query.where(SESSION.c.owner == wanted.owner)
    order = SESSION.c.seq.asc() if newer else SESSION.c.seq.desc()
    found = list(connection.execute(query.order_by(order).limit(wanted.limit)).scalars())
    return found if newer != wanted.newest_first else found[::-1]


def session_ages(connection: Connection) -> Sequence[Row[Any]]:
    """Of all sessions, the oldest first."""
    return connection.execute(select(SESSION.c.id, SESSION.c.parent_id, SESSION.c.updated).order_by(SESSION.c.seq)).all()


def lock_sessions(connection: Connection, session_ids: Collection[str]) -> Sequence[Row[Any]]:
    """Those that there are. On PostgreSQL nothing is added to them until the transaction ends: the rows are locked."""
    query = select(SESSION.c.id, SESSION.c.updated).where(SESSION.c.id.in_(session_ids)).order_by(SESSION.c.id)
    return connection.execute(query.with_for_update()).all()


def children_of(connection: Connection, session_ids: Collection[str]) -> list[str]:
    return list(connection.execute(select(SESSION.c.id).where(SESSION.c.parent_id.in_(session_ids))).scalars())


def bodies_of_sessions(connection: Connection, session_ids: Collection[str]) -> list[str]:
    return list(connection.execute(select(SESSION_JSON).where(SESSION.c.id.in_(session_ids))).scalars())


def owners(connection: Connection, session_ids: Collection[str]) -> dict[str, str]:
    """Of the sessions that there are."""
    rows = connection.execute(select(SESSION.c.id, SESSION.c.owner).where(SESSION.c.id.in_(session_ids)))
    return {row.id: row.owner for row in rows}


def lock_new_sessions(connection: Connection, session_ids: Collection[str]) -> set[str]:
    """Those of the ids that are taken. Until the transaction ends no other server takes the rest."""
    if connection.dialect.name == "postgresql":
        for session_id in sorted(session_ids):
            connection.execute(_LOCK_NEW_SESSION, {"id": session_id})
    return set(owners(connection, session_ids))


_LOCK_NEW_SESSION = select(func.pg_advisory_xact_lock(func.hashtextextended(bindparam("id", type_=Text), 0)))


@dataclass(frozen=True, slots=True)
class SessionState:
    """Another one when somebody has changed the session; `newest_part` is a sequence number."""

    body: str
    messages: int
    newest_part: int | None


def session_state(connection: Connection, session_id: str) -> SessionState | None:
    body = session_body(connection, session_id)
    if body is None:
        return None
    messages = connection.execute(select(func.count()).where(MESSAGE.c.session_id == session_id)).scalar_one()
    newest_part = connection.execute(select(func.max(PART.c.seq)).where(PART.c.session_id == session_id)).scalar_one()
    return SessionState(body, messages, newest_part)


def is_held(connection: Connection, session_id: str) -> bool:
    """Whether a server runs the session."""
    query = select(LEASE.c.session_id).where(_IS_HELD, LEASE.c.session_id == session_id)
    return connection.execute(query).scalar_one_or_none() is not None


def imported_sessions(connection: Connection) -> dict[str, str]:
    """Fingerprints of the sessions that were imported from OpenCode, by id."""
    return {row.id: row.fingerprint for row in connection.execute(select(IMPORTED_SESSION))}


def has_owned_sessions(connection: Connection) -> bool:
    query = select(SESSION.c.seq).where(SESSION.c.owner != literal_column("''")).limit(1)
    return connection.execute(query).scalar_one_or_none() is not None


def fold(text: str) -> str:
    """The normalized form for searches: case-folded, and without NUL, which PostgreSQL's text cannot hold."""
    return text.casefold().replace("\0", "")


def session_tree(connection: Connection, session_id: str) -> list[str]:
    """The bodies of a session and all its descendants, children before their parents."""
    bodies: list[str] = []
    generation = [session_id]
    body = session_body(connection, session_id)
    while generation:
        rows = connection.execute(
            select(SESSION.c.id, SESSION_JSON).where(SESSION.c.parent_id.in_(generation)).order_by(SESSION.c.seq)
        ).all()
        bodies[:0] = [row.body for row in rows]
        generation = [row.id for row in rows]
    return [*bodies, body] if body is not None else bodies


# Messages and parts.

_MESSAGE_COLUMNS = (MESSAGE.c.seq, MESSAGE.c.id, MESSAGE.c.role, MESSAGE.c.parent_id, MESSAGE.c.body)
_PART_COLUMNS = (PART.c.message_id, PART.c.id, PART.c.body)


@dataclass(frozen=True, slots=True)
class StoredMessages:
    """Messages oldest first, and their parts in order; the rows begin with _MESSAGE_COLUMNS and _PART_COLUMNS. `more`: older
    messages exist."""

    messages: Sequence[Any]
    parts: Sequence[Any]
    more: bool = False


class _AnswerPart(NamedTuple):
    message_id: str
    id: str
    body: str


class EndOfTurn(NamedTuple):
    """What a session is left with: the newest prompt that waits and came after all that was answered, and the newest answer."""

    unanswered: str | None
    answer: StoredMessages


def all_messages(connection: Connection, session_id: str) -> StoredMessages:
    return StoredMessages(
        connection.execute(_ALL_MESSAGES, {"session": session_id}).all(),
        connection.execute(_ALL_PARTS, {"session": session_id}).all(),
    )


_OF_SESSION = MESSAGE.c.session_id == bindparam("session")
_IN_ORDER = select(*_MESSAGE_COLUMNS).where(_OF_SESSION).order_by(MESSAGE.c.seq)
_ALL_MESSAGES = _IN_ORDER


def history_pages(connection: Connection, session_id: str, size: int) -> Iterator[StoredMessages]:
    """The whole history, oldest first, `size` messages at a time."""
    after = -1
    while rows := connection.execute(_MESSAGES_AFTER, {"session": session_id, "after": after, "size": size}).all():
        after = rows[-1].seq
        yield StoredMessages(rows, _parts_of(connection, session_id, [row.id for row in rows]))


_MESSAGES_AFTER = _IN_ORDER.where(MESSAGE.c.seq > bindparam("after")).limit(bindparam("size"))


_BY_MESSAGE = (PART.c.message_id, PART.c.seq)
"""The order of the index `part_by_message`. Queries need the order of parts within a message only."""
_PARTS_IN_ORDER = select(*_PART_COLUMNS).where(PART.c.session_id == bindparam("session")).order_by(*_BY_MESSAGE)
_ALL_PARTS = _PARTS_IN_ORDER


@dataclass(frozen=True, slots=True)
class HistoryExtent:
    """The first and the last sequence of the messages and of the parts; `before`: that of the first message that is not meant."""

    before: int
    messages: tuple[int, int]
    parts: tuple[int, int]


def history_extent(connection: Connection, session_id: str, message_id: str | None) -> HistoryExtent | None:
    """Up to a message, or with None of all that there is. None for an unknown message."""
    messages, parts = (_extent_of(connection, table, session_id) for table in (MESSAGE, PART))
    if message_id is None:
        return HistoryExtent(messages[1] + 1, messages, parts)
    found = connection.execute(_ONE_MESSAGE, {"session": session_id, "message": message_id}).first()
    return HistoryExtent(found.seq, messages, parts) if found else None


def _extent_of(connection: Connection, table: Any, session_id: str) -> tuple[int, int]:
    first, last = connection.execute(_EXTENTS[table], {"session": session_id}).one()
    return first or 0, last or 0


_EXTENTS = {
    table: (select(func.min(table.c.seq), func.max(table.c.seq)).where(table.c.session_id == bindparam("session")))
    for table in (MESSAGE, PART)
}


def copied_history(connection: Connection, session_id: str) -> StoredMessages:
    """All messages, and the parts with their types."""
    wanted = {"session": session_id}
    return StoredMessages(connection.execute(_ALL_MESSAGES, wanted).all(), connection.execute(_PARTS_AND_TYPES, wanted).all())


_PARTS_AND_TYPES = _PARTS_IN_ORDER.add_columns(PART.c.type)


def live_messages(connection: Connection, session_id: str) -> StoredMessages:
    """The messages since the newest finished compaction: what a turn needs, however long the session is."""
    return _with_live_parts(connection, session_id, connection.execute(_LIVE_MESSAGES, {"session": session_id}).all())


def short_history(connection: Connection, session_id: str, most: int) -> StoredMessages | None:
    """The live messages, unless there are more than `most`."""
    messages = connection.execute(_FEW_LIVE_MESSAGES, {"session": session_id, "limit": most + 1}).all()
    return _with_live_parts(connection, session_id, messages) if len(messages) <= most else None


@dataclass(frozen=True, slots=True)
class LiveHistory:
    """The `texts` of all live messages by id, oldest first, and the rows of some. A text has all that is stored of a message and
    its parts: equal texts are equal messages."""

    texts: Mapping[str, str]
    stored: StoredMessages

    @classmethod
    def whole(cls, stored: StoredMessages) -> "LiveHistory":
        """With the same texts as the database makes."""
        parts: dict[str, list[str]] = {}
        for message_id, part_id, body in stored.parts:
            parts.setdefault(message_id, []).append(f"{part_id}{body}")
        texts = {
            message_id: f"{parent_id or ''}{body}{_BETWEEN.join(parts.get(message_id, ()))}"
            for _, message_id, _, parent_id, body, *_ in stored.messages
        }
        return cls(texts, stored)


def live_history(connection: Connection, session_id: str, known: Mapping[str, str]) -> LiveHistory:
    """With the rows of messages that have another text than `known` says. A text is less work than the rows that it is of."""
    if not known:
        return LiveHistory.whole(live_messages(connection, session_id))
    rows = connection.execute(_LIVE_TEXTS[connection.dialect.name], {"session": session_id})
    texts = {row.id: row.text for row in rows}
    changed = [message_id for message_id, text in texts.items() if known.get(message_id) != text]
    if len(changed) > MOST_CHANGED:
        return LiveHistory(texts, live_messages(connection, session_id))
    of_changed = [{"session": session_id, "message": message_id} for message_id in changed]
    messages = [connection.execute(_ONE_LIVE_MESSAGE, wanted).one() for wanted in of_changed]
    parts = [row for wanted in of_changed for row in connection.execute(_LIVE_PARTS_OF_ONE, wanted).all()]
    return LiveHistory(texts, StoredMessages(messages, parts))


MOST_CHANGED = 20
"""Messages that are read one by one, rather than all."""
_BETWEEN = "\n"
"""Stands in no stored body, which is JSON in one line."""
_JOINED = {
    "sqlite": lambda part: func.group_concat(part, literal_column("char(10)"), type_=Text),  # in the order of `part_by_message`
    "postgresql": lambda part: func.string_agg(part, literal_column("chr(10) ORDER BY part.seq"), type_=Text),
}


def _with_live_parts(connection: Connection, session_id: str, messages: Sequence[Any]) -> StoredMessages:
    boundary = messages[0].boundary if messages else None
    parts = _LIVE_PARTS if boundary is None else _LIVE_PARTS_FROM
    return StoredMessages(messages, connection.execute(parts, {"session": session_id, "start": boundary}).all())


_SUMMARY = MESSAGE.alias("summary")
_BOUNDARY = (
    select(MESSAGE.c.seq)
    .join(_SUMMARY, (_SUMMARY.c.session_id == MESSAGE.c.session_id) & (_SUMMARY.c.parent_id == MESSAGE.c.id))
    .where(MESSAGE.c.session_id == bindparam("session"), _SUMMARY.c.boundary)
    .order_by(_SUMMARY.c.seq.desc())
    .limit(1)
    .correlate(None)
    .scalar_subquery()
)
_LIVE_MESSAGE_BODY: ColumnElement[str] = func.coalesce(MESSAGE.c.live_body, MESSAGE.c.body)
_LIVE_PART_BODY: ColumnElement[str] = func.coalesce(PART.c.live_body, PART.c.body)
_SINCE_BOUNDARY = _IN_ORDER.where(MESSAGE.c.seq >= func.coalesce(_BOUNDARY, 0)).with_only_columns(
    *_MESSAGE_COLUMNS[:-1], _LIVE_MESSAGE_BODY.label("body"), _BOUNDARY.label("boundary")
)
_LIVE_MESSAGES = _SINCE_BOUNDARY
_FEW_LIVE_MESSAGES = _SINCE_BOUNDARY.limit(bindparam("limit"))
_LIVE_BODIES = _PARTS_IN_ORDER.with_only_columns(PART.c.message_id, PART.c.id, _LIVE_PART_BODY.label("body"))
_LIVE_PARTS = _LIVE_BODIES
_LIVE_PARTS_FROM = _LIVE_BODIES.where(
    PART.c.message_id.in_(select(MESSAGE.c.id).where(_OF_SESSION, MESSAGE.c.seq >= bindparam("start")))
)
_ONE_LIVE_MESSAGE = _SINCE_BOUNDARY.where(MESSAGE.c.id == bindparam("message"))
_LIVE_PARTS_OF_ONE = _LIVE_BODIES.where(PART.c.message_id == bindparam("message"))


def _live_texts(dialect: str) -> Select[Any]:
    of_message = and_(PART.c.session_id == bindparam("session"), PART.c.message_id == MESSAGE.c.id)
    parts = select(_JOINED[dialect](PART.c.id + _LIVE_PART_BODY)).where(of_message).scalar_subquery()
    nothing: ColumnElement[str] = literal_column("''", Text)
    whole = func.coalesce(MESSAGE.c.parent_id, nothing) + _LIVE_MESSAGE_BODY + func.coalesce(parts, nothing)
    return _SINCE_BOUNDARY.with_only_columns(MESSAGE.c.id, whole.label("text"))


_LIVE_TEXTS = {dialect: _live_texts(dialect) for dialect in _JOINED}


def newest_messages(connection: Connection, session_id: str, limit: int, before: int | None) -> StoredMessages:
    """The `limit` newest messages, or the newest with a sequence below `before`."""
    query = select(*_MESSAGE_COLUMNS).where(MESSAGE.c.session_id == session_id)
    if before is not None:
        query = query.where(MESSAGE.c.seq < before)
    rows = connection.execute(query.order_by(MESSAGE.c.seq.desc()).limit(limit + 1)).all()
    page = rows[:limit][::-1]
    return StoredMessages(page, _parts_of(connection, session_id, [row.id for row in page]), more=len(rows) > limit)


def one_message(connection: Connection, session_id: str, message_id: str) -> StoredMessages:
    rows = connection.execute(_ONE_MESSAGE, {"session": session_id, "message": message_id}).all()
    return StoredMessages(rows, _parts_of_one(connection, session_id, message_id))


def _parts_of_one(connection: Connection, session_id: str, message_id: str) -> Sequence[Row[Any]]:
    return connection.execute(_PARTS_OF_ONE, {"session": session_id, "message": message_id}).all()


def session_and_prompt(connection: Connection, session_id: str, prompt_id: str) -> Row[Any] | None:
    """The session's `body` and `diff_basis`, and the body of the `prompt`, which is None for an unknown one."""
    return connection.execute(_SESSION_AND_PROMPT, {"session": session_id, "message": prompt_id}).one_or_none()


_SESSION_AND_PROMPT = (
    select(SESSION_JSON, SESSION.c.diff_basis, MESSAGE.c.body.label("prompt"))
    .outerjoin(MESSAGE, and_(MESSAGE.c.session_id == SESSION.c.id, MESSAGE.c.id == bindparam("message")))
    .where(SESSION.c.id == bindparam("session"))
)


@dataclass(frozen=True, slots=True)
class MessageRange:
    """`limit` messages beside the one with the id `anchor`, `newer` or older than it; without an anchor the first ones."""

    limit: int
    newest_first: bool
    anchor: str | None = None
    newer: bool = False


def message_range(connection: Connection, session_id: str, wanted: MessageRange) -> StoredMessages:
    """Oldest first, whatever the order wanted. Raises UnknownAnchor."""
    query, newer = select(*_MESSAGE_COLUMNS).where(MESSAGE.c.session_id == session_id), not wanted.newest_first
    if wanted.anchor is not None:
        newer = wanted.newer
        seq = connection.execute(_ONE_MESSAGE, {"session": session_id, "message": wanted.anchor}).first()
        if seq is None:
            raise UnknownAnchor(wanted.anchor)
        query = query.where(MESSAGE.c.seq > seq.seq if newer else MESSAGE.c.seq < seq.seq)
    order = MESSAGE.c.seq.asc() if newer else MESSAGE.c.seq.desc()
    found = connection.execute(query.order_by(order).limit(wanted.limit)).all()
    page = found if newer else found[::-1]
    return StoredMessages(page, _parts_of(connection, session_id, [row.id for row in page]))


def some_messages(connection: Connection, session_id: str, message_ids: Collection[str]) -> StoredMessages:
    found = _IN_ORDER.where(MESSAGE.c.id.in_(message_ids))
    rows = connection.execute(found, {"session": session_id}).all()
    return StoredMessages(rows, _parts_of(connection, session_id, [row.id for row in rows]))


_ONE_MESSAGE = select(*_MESSAGE_COLUMNS).where(_OF_SESSION, MESSAGE.c.id == bindparam("message"))
_PARTS_OF_ONE = _PARTS_IN_ORDER.where(PART.c.message_id == bindparam("message"))


def _parts_of(connection: Connection, session_id: str, message_ids: list[str]) -> Sequence[Row[Any]]:
    return connection.execute(_PARTS_IN_ORDER.where(PART.c.message_id.in_(message_ids)), {"session": session_id}).all()


def session_to_prompt(connection: Connection, session_id: str) -> Row[Any] | None:
    """The session's `body`, the ids of its newest `message` and that one's newest `part`, the `newest_prompt` without diffs."""
    return connection.execute(_SESSION_TO_PROMPT, {"id": session_id}).one_or_none()


_MESSAGES_OF_ID = select(MESSAGE.c.id).where(MESSAGE.c.session_id == bindparam("id")).order_by(MESSAGE.c.seq.desc()).limit(1)
_NEWEST_MESSAGE = _MESSAGES_OF_ID.scalar_subquery()
_NEWEST_PART = (
    select(PART.c.id)
    .where(PART.c.session_id == bindparam("id"), PART.c.message_id == _NEWEST_MESSAGE)
    .order_by(PART.c.seq.desc())
    .limit(1)
    .scalar_subquery()
)
_NEWEST_PROMPT = (
    _MESSAGES_OF_ID.where(MESSAGE.c.role == "user")
    .with_only_columns(func.coalesce(MESSAGE.c.live_body, MESSAGE.c.body))
    .scalar_subquery()
)
_SESSION_TO_PROMPT = _ONE_SESSION.add_columns(
    _NEWEST_MESSAGE.label("message"), _NEWEST_PART.label("part"), _NEWEST_PROMPT.label("newest_prompt")
)


def input_hash(connection: Connection, session_id: str, message_id: str) -> Row[Any] | None:
    return connection.execute(_INPUT_HASH, {"session": session_id, "message": message_id}).one_or_none()


_INPUT_HASH = select(MESSAGE.c.input_hash, MESSAGE.c.role).where(_OF_SESSION, MESSAGE.c.id == bindparam("message"))


def newest_answer(connection: Connection, session_id: str, prompt_id: str | None = None) -> StoredMessages:
    """The newest in a session, or to one prompt; empty if there is none."""
    query = _NEWEST_ANSWER if prompt_id is None else _NEWEST_ANSWER_TO
    return _with_parts(connection.execute(query, {"session": session_id, "prompt": prompt_id}).all())


def end_of_turn(connection: Connection, session_id: str) -> EndOfTurn:
    found = connection.execute(_END_OF_TURN, {"session": session_id}).all()
    unanswered = found[0].unanswered if found else unanswered_prompt(connection, session_id)
    return EndOfTurn(unanswered, _with_parts(found))


def _with_parts(found: Sequence[Any]) -> StoredMessages:
    """Of rows that have a message and one of its parts each."""
    parts = [_AnswerPart(row.id, row.part_id, row.part_body) for row in found if row.part_id is not None]
    return StoredMessages(found[:1], parts)


def _newest_with_parts(*conditions: Any) -> Any:
    """In one statement, which takes less time than two; an answer's message is short beside its parts."""
    newest = select(func.max(MESSAGE.c.seq)).where(_OF_SESSION, MESSAGE.c.role == "assistant", *conditions).correlate(None)
    return (
        select(*_MESSAGE_COLUMNS, PART.c.id.label("part_id"), PART.c.body.label("part_body"))
        .outerjoin(PART, and_(PART.c.session_id == MESSAGE.c.session_id, PART.c.message_id == MESSAGE.c.id))
        .where(_OF_SESSION, MESSAGE.c.seq == newest.scalar_subquery())
        .order_by(PART.c.seq)
    )


_NEWEST_ANSWER = _newest_with_parts()
_NEWEST_ANSWER_TO = _newest_with_parts(MESSAGE.c.parent_id == bindparam("prompt"))


def is_at_or_after(connection: Connection, session_id: str, message_id: str, earlier_id: str) -> bool:
    """False also if the session has no message `earlier_id`."""
    places = select(MESSAGE.c.id, MESSAGE.c.seq).where(
        MESSAGE.c.session_id == session_id, MESSAGE.c.id.in_([message_id, earlier_id])
    )
    seqs = {row.id: row.seq for row in connection.execute(places)}
    return earlier_id in seqs and seqs[message_id] >= seqs[earlier_id]


def patches(connection: Connection, session_id: str) -> Sequence[Row[Any]]:
    """The patch parts of a session, in order."""
    return connection.execute(_PATCHES, {"session": session_id}).all()


_IS_PATCH = PART.c.type == literal_column("'patch'")
"""A literal instead of a bound value: the partial index is used only if the statement itself contains its condition."""
_PATCHES = select(*_PART_COLUMNS).where(PART.c.session_id == bindparam("session"), _IS_PATCH).order_by(PART.c.seq)


def patches_version(connection: Connection, session_id: str) -> str:
    """Changes whenever a patch part is added or removed."""
    count, newest = connection.execute(_PATCHES_VERSION, {"session": session_id}).one()
    return f"{count}:{newest}"


_PATCHES_VERSION = select(func.count(), func.max(PART.c.seq)).where(
    PART.c.session_id == bindparam("session"), _IS_PATCH, PART.c.seq > literal_column("0")
)
"""All have such a sequence. Without that condition SQLite reads all parts of the session, if the index of patches was not made
last."""


@dataclass(frozen=True, slots=True)
class EdgeSnapshots:
    """The first snapshot before a step and the last one after a step, in the session and in the answers to one prompt; and the
    session's diff basis."""

    basis: str | None
    session: tuple[str | None, str | None]
    prompt: tuple[str | None, str | None]


def edge_snapshots(connection: Connection, session_id: str, prompt_id: str) -> EdgeSnapshots:
    found = connection.execute(_EDGE_SNAPSHOTS, {"session": session_id, "prompt": prompt_id}).one_or_none()
    basis, *edges = found or 5 * [None]
    return EdgeSnapshots(basis, (edges[0], edges[1]), (edges[2], edges[3]))


_PROMPT = MESSAGE.alias("prompt")
_ASKED = select(_PROMPT.c.seq).where(_PROMPT.c.session_id == bindparam("session"), _PROMPT.c.id == bindparam("prompt"))
_IS_ANSWER = and_(_OF_SESSION, MESSAGE.c.parent_id == bindparam("prompt"), MESSAGE.c.seq > _ASKED.scalar_subquery())
"""An answer follows its prompt, so earlier messages are skipped."""


def _edge(messages: ColumnElement[bool], part_type: str, *, last: bool) -> Any:
    """Searches the messages from one end for the first with a snapshot."""
    of_message = (PART.c.session_id == MESSAGE.c.session_id) & (PART.c.message_id == MESSAGE.c.id)
    snapshots = select(PART.c.snapshot).where(of_message, PART.c.type == part_type, PART.c.snapshot.is_not(None))
    snapshot = snapshots.order_by(PART.c.seq.desc() if last else PART.c.seq).limit(1).scalar_subquery()
    order = MESSAGE.c.seq.desc() if last else MESSAGE.c.seq
    return select(snapshot).where(messages, snapshot.is_not(None)).order_by(order).limit(1).scalar_subquery()


_EDGES = [
    _edge(messages, part_type, last=part_type == "step-finish")
    for messages in (_OF_SESSION, _IS_ANSWER)
    for part_type in ("step-start", "step-finish")
]
_EDGE_SNAPSHOTS = select(SESSION.c.diff_basis, *_EDGES).where(SESSION.c.id == bindparam("session"))


def answers_to(connection: Connection, session_id: str, message_id: str) -> list[str]:
    asked = {"session": session_id, "prompt": message_id}
    return list(connection.execute(_ANSWERS, asked).scalars())


_ANSWERS = select(MESSAGE.c.id).where(_IS_ANSWER).order_by(MESSAGE.c.seq)


def session_and_waiting_prompts(connection: Connection, session_id: str) -> Row[Any] | None:
    """The session's `body`, and how many prompts are `waiting` for an answer."""
    return connection.execute(_SESSION_AND_WAITING_PROMPTS, {"id": session_id}).one_or_none()


_WAITING_PROMPTS = (
    select(func.count())
    .select_from(MESSAGE)
    .where(MESSAGE.c.session_id == bindparam("id"), MESSAGE.c.role == "user", MESSAGE.c.open)
    .scalar_subquery()
    .label("waiting")
)
_SESSION_AND_WAITING_PROMPTS = _ONE_SESSION.add_columns(_WAITING_PROMPTS)


def unanswered_prompt(connection: Connection, session_id: str) -> str | None:
    """The newest prompt that waits and came after all that was answered."""
    return connection.execute(_UNANSWERED, {"session": session_id}).scalar_one_or_none()


_WAITING_PROMPT = (
    select(MESSAGE.c.id)
    .where(_OF_SESSION, MESSAGE.c.role == "user", MESSAGE.c.open)
    .where(MESSAGE.c.seq > func.coalesce(newest_answered("session"), 0))
    .order_by(MESSAGE.c.seq.desc())
    .limit(1)
)
_UNANSWERED = _WAITING_PROMPT
_END_OF_TURN = _newest_with_parts().add_columns(_WAITING_PROMPT.correlate(None).scalar_subquery().label("unanswered"))


_IS_HELD = LEASE.c.owner != literal_column("''")
"""No bound value: the partial index is used only where the statement itself says it."""
_HELD_SESSIONS = select(LEASE.c.session_id).where(_IS_HELD)


def orphaned_messages(connection: Connection, sessions: Collection[str] | None = None) -> list[tuple[str, str, str]]:
    """(session, message, role) of answers left open, and of prompts that wait for one: in `sessions`, or in all that no server
    works on."""
    query = (
        select(MESSAGE.c.session_id, MESSAGE.c.id, MESSAGE.c.role)
        .where(MESSAGE.c.open, _in_or_not_leased(MESSAGE.c.session_id, sessions))
        .order_by(MESSAGE.c.seq)
    )
    return [(row.session_id, row.id, row.role) for row in connection.execute(query).all()]


def abandoned_sessions(connection: Connection) -> Sequence[Row[Any]]:
    """(session_id, directory, answered) of sessions that no server works on: with a prompt without an answer, or an open one."""
    return connection.execute(_ABANDONED_SESSIONS).all()


_ANSWER = MESSAGE.alias("answer")
_ANSWER_TO_PROMPT = (
    exists()
    .where(_ANSWER.c.session_id == MESSAGE.c.session_id, _ANSWER.c.role == "assistant")
    .where(_ANSWER.c.parent_id == MESSAGE.c.id)
)
_ABANDONED_SESSIONS = (
    select(
        MESSAGE.c.session_id, SESSION.c.directory, func.max(case((MESSAGE.c.role == "assistant", 1), else_=0)).label("answered")
    )
    .join(SESSION, SESSION.c.id == MESSAGE.c.session_id)
    .where(MESSAGE.c.open, MESSAGE.c.session_id.not_in(_HELD_SESSIONS))
    .where(or_(MESSAGE.c.role == "assistant", ~_ANSWER_TO_PROMPT))
    .group_by(MESSAGE.c.session_id, SESSION.c.directory)
)


def _in_or_not_leased(session_id: ColumnElement[str], sessions: Collection[str] | None) -> ColumnElement[bool]:
    return session_id.not_in(_HELD_SESSIONS) if sessions is None else session_id.in_(sessions)


def unfinished_reverts(connection: Connection) -> list[tuple[str, str]]:
    """(session, directory) of sessions whose server was killed while it restored files."""
    return [(row.id, row.directory) for row in connection.execute(_UNFINISHED_REVERTS).all()]


_UNFINISHED_REVERTS = select(SESSION.c.id, SESSION.c.directory).where(SESSION.c.reverting, SESSION.c.id.not_in(_HELD_SESSIONS))


# Prompts that wait for a turn of their own.


def queued_prompts(connection: Connection, session_id: str) -> Sequence[Row[Any]]:
    """In their order."""
    return connection.execute(_QUEUED_PROMPTS, {"of_session": session_id}).all()


_QUEUED_PROMPTS = (
    select(*QUEUED_PROMPT.columns).where(QUEUED_PROMPT.c.session_id == bindparam("of_session")).order_by(QUEUED_PROMPT.c.seq)
)


def is_queued(connection: Connection, session_id: str, queued_id: str) -> bool:
    """Until the transaction ends, no other one takes the prompt from the queue."""
    one = (QUEUED_PROMPT.c.session_id == session_id, QUEUED_PROMPT.c.id == queued_id)
    query = select(QUEUED_PROMPT.c.seq).where(*one).with_for_update()
    return connection.execute(query).scalar_one_or_none() is not None


def waiting_queues(connection: Connection) -> list[tuple[str, int]]:
    """(session, `seq` of its first queued prompt) of sessions that no server works on."""
    return [(row.session_id, row.first) for row in connection.execute(_WAITING_QUEUES).all()]


_WAITING_QUEUES = (
    select(QUEUED_PROMPT.c.session_id, func.min(QUEUED_PROMPT.c.seq).label("first"))
    .where(QUEUED_PROMPT.c.session_id.not_in(_HELD_SESSIONS))
    .group_by(QUEUED_PROMPT.c.session_id)
)


# The rest.


def body_of(connection: Connection, of: Any, **key: str) -> str | None:
    query = select(of.c.body).where(*(of.c[column] == value for column, value in key.items()))
    return connection.execute(query).scalar_one_or_none()


def share_of(connection: Connection, session_id: str) -> str | None:
    return connection.execute(select(SHARE.c.id).where(SHARE.c.session_id == session_id)).scalar_one_or_none()


def shared_session(connection: Connection, share_id: str) -> str | None:
    return connection.execute(select(SHARE.c.session_id).where(SHARE.c.id == share_id)).scalar_one_or_none()


def shared_revision(connection: Connection, share_id: str) -> Row[Any] | None:
    """The session that a link shows, with values that change when any server adds, removes or changes messages."""
    return connection.execute(_SHARED_REVISION, {"share": share_id}).one_or_none()


def _extent(of: Any) -> list[ColumnElement[Any]]:
    in_session = of.c.session_id == SHARE.c.session_id
    return [select(what).where(in_session).scalar_subquery() for what in (func.max(of.c.seq), func.count())]


_SHARED_REVISION = (
    select(SHARE.c.session_id, SESSION_JSON, SESSION.c.diff_basis, *_extent(MESSAGE), *_extent(PART))
    .join(SESSION, SESSION.c.id == SHARE.c.session_id)
    .where(SHARE.c.id == bindparam("share"))
)


def projects(connection: Connection) -> list[str]:
    return list(connection.execute(select(PROJECT.c.body).order_by(PROJECT.c.updated.desc(), PROJECT.c.id)).scalars())


def project_of(connection: Connection, session_id: str) -> str | None:
    return connection.execute(select(SESSION.c.project_id).where(SESSION.c.id == session_id)).scalar_one_or_none()


def approvals(connection: Connection, project_id: str) -> list[tuple[str, str]]:
    """(permission, pattern) of every approval in a project."""
    rows = connection.execute(select(APPROVAL.c.permission, APPROVAL.c.pattern).where(APPROVAL.c.project_id == project_id)).all()
    return [(row.permission, row.pattern) for row in rows]


def all_approvals(connection: Connection) -> list[tuple[str, str, str]]:
    """(project_id, permission, pattern), in the order of these."""
    columns = (APPROVAL.c.project_id, APPROVAL.c.permission, APPROVAL.c.pattern)
    rows = connection.execute(select(*columns).order_by(*columns)).all()
    return [(row.project_id, row.permission, row.pattern) for row in rows]


_REQUESTS = select(PENDING_REQUEST.c.directory, PENDING_REQUEST.c.body).order_by(PENDING_REQUEST.c.seq)
_WAITING_REQUESTS = _REQUESTS.where(PENDING_REQUEST.c.answer.is_(None))


def pending_requests(connection: Connection, kind: str, directory: str, owner: str | None = None) -> list[str]:
    """`owner`: only those of the sessions of a user."""
    wanted = _WAITING_REQUESTS.where(PENDING_REQUEST.c.kind == kind, PENDING_REQUEST.c.directory == directory)
    if owner is not None:
        wanted = wanted.where(PENDING_REQUEST.c.session_id.in_(select(SESSION.c.id).where(SESSION.c.owner == owner)))
    return [row.body for row in connection.execute(wanted)]


def pending_request(connection: Connection, kind: str, request_id: str) -> Row[Any] | None:
    wanted = _WAITING_REQUESTS.where(PENDING_REQUEST.c.kind == kind, PENDING_REQUEST.c.id == request_id)
    return connection.execute(wanted).one_or_none()


def session_requests(connection: Connection, kind: str, session_id: str) -> Sequence[Row[Any]]:
    wanted = _WAITING_REQUESTS.where(PENDING_REQUEST.c.kind == kind, PENDING_REQUEST.c.session_id == session_id)
    return connection.execute(wanted).all()


def session_of_request(connection: Connection, request_id: str) -> str | None:
    query = select(PENDING_REQUEST.c.session_id).where(PENDING_REQUEST.c.id == request_id)
    return connection.execute(query).scalar_one_or_none()


def is_pending(connection: Connection, request_id: str) -> bool:
    return connection.execute(_WAITING_REQUESTS.where(PENDING_REQUEST.c.id == request_id)).one_or_none() is not None


def has_request(connection: Connection, request_id: str) -> bool:
    """Whether it waits or is answered."""
    return connection.execute(select(PENDING_REQUEST.c.seq).where(PENDING_REQUEST.c.id == request_id)).first() is not None


def answered_requests(connection: Connection, request_ids: Collection[str]) -> Sequence[Row[Any]]:
    columns = select(PENDING_REQUEST.c.id, PENDING_REQUEST.c.answer)
    wanted = columns.where(PENDING_REQUEST.c.id.in_(request_ids), PENDING_REQUEST.c.answer.is_not(None))
    return connection.execute(wanted).all()


def orphaned_requests(connection: Connection, kind: str, sessions: Collection[str] | None = None) -> Sequence[Row[Any]]:
    """The requests in `sessions`, or in all sessions without a lease."""
    query = select(PENDING_REQUEST.c.directory, PENDING_REQUEST.c.body).where(
        PENDING_REQUEST.c.kind == kind, _in_or_not_leased(PENDING_REQUEST.c.session_id, sessions)
    )
    return connection.execute(query.order_by(PENDING_REQUEST.c.seq)).all()


def events_after(
    connection: Connection, seq: int, directory: str | None, max_bytes: int, owner: str | None = None
) -> tuple[list[Row[Any]], bool]:
    """The journal's rows after a cursor, of one directory or of all, up to `max_bytes` in total but at least one; and whether
    these are all. `owner`: without those of other users' sessions. Reads hardly more rows than it returns."""
    columns = (EVENT.c.seq, EVENT.c.directory, EVENT.c.time, EVENT.c.payload, EVENT.c.bytes, EVENT.c.owner)
    query: Select[Any] = select(*columns).where(EVENT.c.seq > seq).order_by(EVENT.c.seq)
    if directory is not None:
        query = query.where(EVENT.c.directory == directory)
    if owner is not None:
        query = query.where(or_(EVENT.c.owner == owner, EVENT.c.owner.is_(None)))
    rows: list[Row[Any]] = []
    size = 0
    with connection.execute(query, execution_options=_ROW_BY_ROW) as found:
        for row in found:
            if rows and size + row.bytes > max_bytes:
                return rows, False
            rows.append(row)
            size += row.bytes
    return rows, True


_ROW_BY_ROW = {"stream_results": True, "max_row_buffer": 4}
"""Without this, PostgreSQL's driver would fetch the whole result."""


def session_events(connection: Connection, session_id: str, seq: int) -> Sequence[Row[Any]]:
    """The journal's rows after a cursor that may be of a session: those that name it."""
    columns = (EVENT.c.seq, EVENT.c.time, EVENT.c.payload)
    named = EVENT.c.payload.contains(session_id, autoescape=True)
    return connection.execute(select(*columns).where(EVENT.c.seq > seq, named).order_by(EVENT.c.seq)).all()


def database_identity(connection: Connection) -> str:
    """Differs between databases."""
    return str(connection.execute(select(COUNTER.c.value).where(COUNTER.c.name == "identity")).scalar_one())


def journal_span(connection: Connection) -> tuple[int, int]:
    """(oldest stored, newest assigned) sequence. The oldest is newest + 1 if the journal is empty."""
    newest = connection.execute(select(COUNTER.c.value).where(COUNTER.c.name == "journal")).scalar_one()
    oldest = connection.execute(select(func.min(EVENT.c.seq))).scalar_one_or_none()
    return (oldest if oldest is not None else newest + 1, newest)


def journal_end(connection: Connection, keep_events: int, keep_bytes: int, older_than: int) -> int:
    """The newest sequence to trim; 0 for none. The journal keeps at most `keep_bytes` in total, and none with a time before
    `older_than`; of the others the newest `keep_events` events, and what a webhook is still to be offered."""
    newest = connection.execute(select(func.max(EVENT.c.seq))).scalar_one_or_none() or 0
    too_many = connection.execute(_TOO_MANY_BYTES, {"keep": keep_bytes}).scalar_one_or_none() or 0
    too_old = connection.execute(_TOO_OLD, {"limit": older_than}).scalar_one_or_none() or 0
    offered = connection.execute(_OFFERED_TO_WEBHOOKS).scalar_one_or_none()
    superfluous = newest - keep_events if offered is None else min(newest - keep_events, offered)
    return max(too_many, too_old, superfluous)


_OFFERED_TO_WEBHOOKS = select(func.min(WEBHOOK.c.cursor)).where(WEBHOOK.c.enabled)
_NEWER = select(
    EVENT.c.seq, func.sum(EVENT.c.bytes).over(order_by=(EVENT.c.time.desc(), EVENT.c.seq.desc())).label("kept")
).subquery()
_TOO_MANY_BYTES = select(func.max(_NEWER.c.seq)).where(_NEWER.c.kept > bindparam("keep"))
"""Ordered as the index, which covers the query."""
_TOO_OLD = select(func.max(EVENT.c.seq)).where(EVENT.c.time < bindparam("limit"))


def trim_journal(connection: Connection, upto: int) -> None:
    connection.execute(delete(EVENT).where(EVENT.c.seq <= upto))


def leases(connection: Connection) -> Sequence[Row[Any]]:
    """Those that are held. With `age`: milliseconds since the heartbeat."""
    return connection.execute(_leases(connection).where(_IS_HELD)).all()


def aborting_leases(connection: Connection, owner: str) -> list[str]:
    """Sessions that a server holds and another wants to be idle."""
    query = select(LEASE.c.session_id).where(_IS_HELD, LEASE.c.owner == owner, LEASE.c.aborting)
    return list(connection.execute(query).scalars())


def lease_statuses(connection: Connection, directory: str) -> Sequence[Row[Any]]:
    """Of the sessions that servers hold in a directory."""
    query = _leases(connection).add_columns(LEASE.c.status)
    return connection.execute(query.where(_IS_HELD, LEASE.c.directory == directory, LEASE.c.status.is_not(None))).all()


def lease_of(connection: Connection, session_id: str) -> Row[Any] | None:
    """Also where nothing is held: its generation goes on."""
    return connection.execute(_leases(connection).where(LEASE.c.session_id == session_id)).one_or_none()


def _leases(connection: Connection) -> Select[Any]:
    return _LEASES[connection.dialect.name]


_LEASES = {
    dialect: select(
        LEASE.c.session_id,
        LEASE.c.owner,
        LEASE.c.generation,
        LEASE.c.takeovers,
        (now_ms(dialect) - LEASE.c.heartbeat).label("age"),
    )
    for dialect in ("sqlite", "postgresql")
}


def replicas(connection: Connection) -> Sequence[Row[Any]]:
    """In the order of their starts. With `age`: milliseconds since the heartbeat; `running`: the sessions that each works on."""
    age = (now_ms(connection.dialect.name) - REPLICA.c.heartbeat).label("age")
    running = select(func.count()).select_from(LEASE).where(LEASE.c.owner == REPLICA.c.id).scalar_subquery().label("running")
    return connection.execute(select(REPLICA, age, running).order_by(REPLICA.c.started, REPLICA.c.id)).all()


# What servers agree on about directories.


def directory_state(connection: Connection, directory: str, name: str) -> Row[Any] | None:
    of_name = (DIRECTORY_STATE.c.directory == directory, DIRECTORY_STATE.c.name == name)
    return connection.execute(select(DIRECTORY_STATE).where(*of_name)).one_or_none()


def directory_states(connection: Connection, directory: str) -> Sequence[Row[Any]]:
    """The oldest first."""
    return connection.execute(_DIRECTORY_STATES.where(DIRECTORY_STATE.c.directory == directory)).all()


def directory_states_of(connection: Connection, prefix: str, value: str) -> Sequence[Row[Any]]:
    """Of a value, by the beginning of their name."""
    wanted = (DIRECTORY_STATE.c.name.startswith(prefix, autoescape=True), DIRECTORY_STATE.c.value == value)
    return connection.execute(_DIRECTORY_STATES.where(*wanted)).all()


def directory_states_after(connection: Connection, revision: int) -> Sequence[Row[Any]]:
    return connection.execute(_DIRECTORY_STATES.where(DIRECTORY_STATE.c.revision > revision)).all()


def newest_directory_state(connection: Connection) -> int:
    """A revision; 0 where there are none."""
    return connection.execute(select(func.max(DIRECTORY_STATE.c.revision))).scalar_one_or_none() or 0


_DIRECTORY_STATES = select(DIRECTORY_STATE).order_by(DIRECTORY_STATE.c.revision)


def held_among(connection: Connection, session_ids: Collection[str]) -> list[str]:
    """Those that a server works on."""
    return list(connection.execute(_HELD_SESSIONS.where(LEASE.c.session_id.in_(session_ids))).scalars())


def held_sessions(connection: Connection, directory: str | None) -> list[str]:
    """Sessions that a server works on in a directory, or in any."""
    query = select(LEASE.c.session_id).join(SESSION, SESSION.c.id == LEASE.c.session_id).where(_IS_HELD)
    if directory is not None:
        query = query.where(func.coalesce(LEASE.c.directory, SESSION.c.directory) == directory)
    return list(connection.execute(query).scalars())


def held_directories(connection: Connection) -> list[str]:
    """Where servers work on sessions."""
    directory = func.coalesce(LEASE.c.directory, SESSION.c.directory)
    query = select(directory).join(SESSION, SESSION.c.id == LEASE.c.session_id).where(_IS_HELD).distinct()
    return list(connection.execute(query).scalars())


def database_bytes(connection: Connection) -> int:
    """The bytes in use, of the whole database."""
    if connection.dialect.name == "sqlite":
        pages = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
        return int(connection.execute(text(pages)).scalar_one())
    return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())


def project_bytes(connection: Connection, project_id: str) -> int:
    """The bytes of the messages and parts of a project's sessions. Reads all of them."""
    sessions = select(SESSION.c.id).where(SESSION.c.project_id == project_id)
    tables = [(MESSAGE.c.body, MESSAGE.c.session_id), (PART.c.body, PART.c.session_id)]
    sums = [select(func.sum(_bytes(connection, body))).where(session_id.in_(sessions)) for body, session_id in tables]
    return sum(connection.execute(query).scalar_one() or 0 for query in sums)


def _bytes(connection: Connection, body: ColumnElement[str]) -> ColumnElement[int]:
    """SQLite has `octet_length` only since 3.43."""
    return func.length(cast(body, LargeBinary)) if connection.dialect.name == "sqlite" else func.octet_length(body)


# Users.


def users(connection: Connection) -> Sequence[Row[Any]]:
    return connection.execute(select(USER).order_by(USER.c.created, USER.c.name)).all()


def user_keys(connection: Connection, name: str | None = None) -> Sequence[Row[Any]]:
    """Of one user or of all; encrypted."""
    query = select(USER_KEY).order_by(USER_KEY.c.name, USER_KEY.c.provider_id)
    return connection.execute(query if name is None else query.where(USER_KEY.c.name == name)).all()


def usage(connection: Connection, name: str, day: str) -> Row[Any] | None:
    return connection.execute(select(USAGE).where(USAGE.c.name == name, USAGE.c.day == day)).one_or_none()


@dataclass(frozen=True, slots=True)
class UsageFilter:
    """`since` (inclusive) and `until` (exclusive) in epoch milliseconds."""

    since: int | None = None
    until: int | None = None
    owner: str | None = None
    """None: whosever it was."""


DAY_MS = 86_400_000
_USAGE_GROUPS: dict[str, tuple[ColumnElement[Any], ...]] = {
    "model": (STEP_USAGE.c.provider_id, STEP_USAGE.c.model_id),
    "provider": (STEP_USAGE.c.provider_id,),
    "day": (STEP_USAGE.c.time // DAY_MS,),
    "session": (STEP_USAGE.c.session_id,),
    "directory": (STEP_USAGE.c.directory,),
    "agent": (STEP_USAGE.c.agent,),
}
_USED = [
    func.coalesce(func.sum(STEP_USAGE.c[name]), 0).label(name)
    for name in ("input", "output", "reasoning", "cache_read", "cache_write", "cost", "turns", "tool_calls")
]


def used_in_groups(connection: Connection, wanted: UsageFilter, group: str) -> list[tuple[tuple[Any, ...], Row[Any]]]:
    """Sums of the ledger by the values of a group, the dearest first."""
    keys = _USAGE_GROUPS[group]
    query = _used(wanted).add_columns(*keys).group_by(*keys).order_by(func.sum(STEP_USAGE.c.cost).desc(), *keys)
    return [(tuple(row)[len(_USED) :], row) for row in connection.execute(query)]


def _used(wanted: UsageFilter) -> Select[Any]:
    query = select(*_USED).select_from(STEP_USAGE)
    if wanted.since is not None:
        query = query.where(STEP_USAGE.c.time >= wanted.since)
    if wanted.until is not None:
        query = query.where(STEP_USAGE.c.time < wanted.until)
    if wanted.owner is not None:
        query = query.where(STEP_USAGE.c.owner == wanted.owner)
    return query
