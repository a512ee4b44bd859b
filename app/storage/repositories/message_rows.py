"""Messages and their parts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Text, and_, bindparam, func, literal_column, select

from app.storage.prepared import PreparedStatement
from app.storage.repositories.session_rows import UnknownAnchor
from app.storage.statements import newest_answered
from app.storage.tables import MESSAGE, PART, SESSION


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


_MESSAGE_COLUMNS = (MESSAGE.c.seq, MESSAGE.c.id, MESSAGE.c.role, MESSAGE.c.parent_id, MESSAGE.c.body)
_OF_SESSION = MESSAGE.c.session_id == bindparam("session")
_IN_ORDER = select(*_MESSAGE_COLUMNS).where(_OF_SESSION).order_by(MESSAGE.c.seq)
_ALL_MESSAGES = PreparedStatement(_IN_ORDER)
_PART_COLUMNS = (PART.c.message_id, PART.c.id, PART.c.body)
_BY_MESSAGE = (PART.c.message_id, PART.c.seq)
"""The order of the index `part_by_message`. Queries need the order of parts within a message only."""
_PARTS_IN_ORDER = select(*_PART_COLUMNS).where(PART.c.session_id == bindparam("session")).order_by(*_BY_MESSAGE)
_ALL_PARTS = PreparedStatement(_PARTS_IN_ORDER)


def all_messages(connection: Connection, session_id: str) -> StoredMessages:
    return StoredMessages(
        connection.execute(_ALL_MESSAGES, {"session": session_id}).all(),
        connection.execute(_ALL_PARTS, {"session": session_id}).all(),
    )


_MESSAGES_AFTER = _IN_ORDER.where(MESSAGE.c.seq > bindparam("after")).limit(bindparam("size"))


def history_pages(connection: Connection, session_id: str, size: int) -> Iterator[StoredMessages]:
    """The whole history, oldest first, `size` messages at a time."""
    after = -1
    while rows := connection.execute(_MESSAGES_AFTER, {"session": session_id, "after": after, "size": size}).all():
        after = rows[-1].seq
        yield StoredMessages(rows, _parts_of(connection, session_id, [row.id for row in rows]))


@dataclass(frozen=True, slots=True)
class HistoryExtent:
    """The first and the last sequence of the messages and of the parts; `before`: that of the first message that is not meant."""

    before: int
    messages: tuple[int, int]
    parts: tuple[int, int]


_ONE_MESSAGE = PreparedStatement(select(*_MESSAGE_COLUMNS).where(_OF_SESSION, MESSAGE.c.id == bindparam("message")))


def history_extent(connection: Connection, session_id: str, message_id: str | None) -> HistoryExtent | None:
    """Up to a message, or with None of all that there is. None for an unknown message."""
    messages, parts = (_extent_of(connection, table, session_id) for table in (MESSAGE, PART))
    if message_id is None:
        return HistoryExtent(messages[1] + 1, messages, parts)
    found = connection.execute(_ONE_MESSAGE, {"session": session_id, "message": message_id}).first()
    return HistoryExtent(found.seq, messages, parts) if found else None


_EXTENTS = {
    table: PreparedStatement(
        select(func.min(table.c.seq), func.max(table.c.seq)).where(table.c.session_id == bindparam("session"))
    )
    for table in (MESSAGE, PART)
}


def _extent_of(connection: Connection, table: Any, session_id: str) -> tuple[int, int]:
    first, last = connection.execute(_EXTENTS[table], {"session": session_id}).one()
    return first or 0, last or 0


_PARTS_AND_TYPES = PreparedStatement(_PARTS_IN_ORDER.add_columns(PART.c.type))


def copied_history(connection: Connection, session_id: str) -> StoredMessages:
    """All messages, and the parts with their types."""
    wanted = {"session": session_id}
    return StoredMessages(connection.execute(_ALL_MESSAGES, wanted).all(), connection.execute(_PARTS_AND_TYPES, wanted).all())


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
_SINCE_BOUNDARY = _IN_ORDER.where(MESSAGE.c.seq >= func.coalesce(_BOUNDARY, 0)).with_only_columns(
    *_MESSAGE_COLUMNS[:-1], _LIVE_MESSAGE_BODY.label("body"), _BOUNDARY.label("boundary")
)
_LIVE_MESSAGES = PreparedStatement(_SINCE_BOUNDARY)


def live_messages(connection: Connection, session_id: str) -> StoredMessages:
    """The messages since the newest finished compaction: what a turn needs, however long the session is."""
    return _with_live_parts(connection, session_id, connection.execute(_LIVE_MESSAGES, {"session": session_id}).all())


_FEW_LIVE_MESSAGES = PreparedStatement(_SINCE_BOUNDARY.limit(bindparam("limit")))


def short_history(connection: Connection, session_id: str, most: int) -> StoredMessages | None:
    """The live messages, unless there are more than `most`."""
    messages = connection.execute(_FEW_LIVE_MESSAGES, {"session": session_id, "limit": most + 1}).all()
    return _with_live_parts(connection, session_id, messages) if len(messages) <= most else None


_BETWEEN = "\n"
"""Stands in no stored body, which is JSON in one line."""


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


MOST_CHANGED = 20
"""Messages that are read one by one, rather than all."""
_ONE_LIVE_MESSAGE = PreparedStatement(_SINCE_BOUNDARY.where(MESSAGE.c.id == bindparam("message")))
_LIVE_PART_BODY: ColumnElement[str] = func.coalesce(PART.c.live_body, PART.c.body)
_LIVE_BODIES = _PARTS_IN_ORDER.with_only_columns(PART.c.message_id, PART.c.id, _LIVE_PART_BODY.label("body"))
_LIVE_PARTS_OF_ONE = PreparedStatement(_LIVE_BODIES.where(PART.c.message_id == bindparam("message")))
_JOINED = {
    "sqlite": lambda part: func.group_concat(part, literal_column("char(10)"), type_=Text),  # in the order of `part_by_message`
    "postgresql": lambda part: func.string_agg(part, literal_column("chr(10) ORDER BY part.seq"), type_=Text),
}


def _live_texts(dialect: str) -> PreparedStatement:
    of_message = and_(PART.c.session_id == bindparam("session"), PART.c.message_id == MESSAGE.c.id)
    parts = select(_JOINED[dialect](PART.c.id + _LIVE_PART_BODY)).where(of_message).scalar_subquery()
    nothing: ColumnElement[str] = literal_column("''", Text)
    whole = func.coalesce(MESSAGE.c.parent_id, nothing) + _LIVE_MESSAGE_BODY + func.coalesce(parts, nothing)
    return PreparedStatement(_SINCE_BOUNDARY.with_only_columns(MESSAGE.c.id, whole.label("text")))


_LIVE_TEXTS = {dialect: _live_texts(dialect) for dialect in _JOINED}


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


_LIVE_PARTS = PreparedStatement(_LIVE_BODIES)
_LIVE_PARTS_FROM = PreparedStatement(
    _LIVE_BODIES.where(PART.c.message_id.in_(select(MESSAGE.c.id).where(_OF_SESSION, MESSAGE.c.seq >= bindparam("start"))))
)


def _with_live_parts(connection: Connection, session_id: str, messages: Sequence[Any]) -> StoredMessages:
    boundary = messages[0].boundary if messages else None
    parts = _LIVE_PARTS if boundary is None else _LIVE_PARTS_FROM
    return StoredMessages(messages, connection.execute(parts, {"session": session_id, "start": boundary}).all())


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


_PARTS_OF_ONE = PreparedStatement(_PARTS_IN_ORDER.where(PART.c.message_id == bindparam("message")))


def _parts_of_one(connection: Connection, session_id: str, message_id: str) -> Sequence[Row[Any]]:
    return connection.execute(_PARTS_OF_ONE, {"session": session_id, "message": message_id}).all()


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


def _parts_of(connection: Connection, session_id: str, message_ids: list[str]) -> Sequence[Row[Any]]:
    return connection.execute(_PARTS_IN_ORDER.where(PART.c.message_id.in_(message_ids)), {"session": session_id}).all()


_INPUT_HASH = PreparedStatement(
    select(MESSAGE.c.input_hash, MESSAGE.c.role).where(_OF_SESSION, MESSAGE.c.id == bindparam("message"))
)


def input_hash(connection: Connection, session_id: str, message_id: str) -> Row[Any] | None:
    return connection.execute(_INPUT_HASH, {"session": session_id, "message": message_id}).one_or_none()


def _newest_with_parts(*conditions: Any) -> Any:
    """In one statement, which takes less time than two; an answer's message is short beside its parts."""
    newest = select(func.max(MESSAGE.c.seq)).where(_OF_SESSION, MESSAGE.c.role == "assistant", *conditions).correlate(None)
    return (
        select(*_MESSAGE_COLUMNS, PART.c.id.label("part_id"), PART.c.body.label("part_body"))
        .outerjoin(PART, and_(PART.c.session_id == MESSAGE.c.session_id, PART.c.message_id == MESSAGE.c.id))
        .where(_OF_SESSION, MESSAGE.c.seq == newest.scalar_subquery())
        .order_by(PART.c.seq)
    )


_NEWEST_ANSWER = PreparedStatement(_newest_with_parts())
_NEWEST_ANSWER_TO = PreparedStatement(_newest_with_parts(MESSAGE.c.parent_id == bindparam("prompt")))


def newest_answer(connection: Connection, session_id: str, prompt_id: str | None = None) -> StoredMessages:
    """The newest in a session, or to one prompt; empty if there is none."""
    query = _NEWEST_ANSWER if prompt_id is None else _NEWEST_ANSWER_TO
    return _with_parts(connection.execute(query, {"session": session_id, "prompt": prompt_id}).all())


_WAITING_PROMPT = (
    select(MESSAGE.c.id)
    .where(_OF_SESSION, MESSAGE.c.role == "user", MESSAGE.c.open)
    .where(MESSAGE.c.seq > func.coalesce(newest_answered("session"), 0))
    .order_by(MESSAGE.c.seq.desc())
    .limit(1)
)
_END_OF_TURN = PreparedStatement(
    _newest_with_parts().add_columns(_WAITING_PROMPT.correlate(None).scalar_subquery().label("unanswered"))
)


def end_of_turn(connection: Connection, session_id: str) -> EndOfTurn:
    found = connection.execute(_END_OF_TURN, {"session": session_id}).all()
    unanswered = found[0].unanswered if found else unanswered_prompt(connection, session_id)
    return EndOfTurn(unanswered, _with_parts(found))


def _with_parts(found: Sequence[Any]) -> StoredMessages:
    """Of rows that have a message and one of its parts each."""
    parts = [_AnswerPart(row.id, row.part_id, row.part_body) for row in found if row.part_id is not None]
    return StoredMessages(found[:1], parts)


def is_at_or_after(connection: Connection, session_id: str, message_id: str, earlier_id: str) -> bool:
    """False also if the session has no message `earlier_id`."""
    places = select(MESSAGE.c.id, MESSAGE.c.seq).where(
        MESSAGE.c.session_id == session_id, MESSAGE.c.id.in_([message_id, earlier_id])
    )
    seqs = {row.id: row.seq for row in connection.execute(places)}
    return earlier_id in seqs and seqs[message_id] >= seqs[earlier_id]


_IS_PATCH = PART.c.type == literal_column("'patch'")
"""A literal instead of a bound value: the partial index is used only if the statement itself contains its condition."""
_PATCHES = select(*_PART_COLUMNS).where(PART.c.session_id == bindparam("session"), _IS_PATCH).order_by(PART.c.seq)


def patches(connection: Connection, session_id: str) -> Sequence[Row[Any]]:
    """The patch parts of a session, in order."""
    return connection.execute(_PATCHES, {"session": session_id}).all()


_PATCHES_VERSION = select(func.count(), func.max(PART.c.seq)).where(
    PART.c.session_id == bindparam("session"), _IS_PATCH, PART.c.seq > literal_column("0")
)
"""All have such a sequence. Without that condition SQLite reads all parts of the session, if the index of patches was not made
last."""


def patches_version(connection: Connection, session_id: str) -> str:
    """Changes whenever a patch part is added or removed."""
    count, newest = connection.execute(_PATCHES_VERSION, {"session": session_id}).one()
    return f"{count}:{newest}"


@dataclass(frozen=True, slots=True)
class EdgeSnapshots:
    """The first snapshot before a step and the last one after a step, in the session and in the answers to one prompt; and the
    session's diff basis."""

    basis: str | None
    session: tuple[str | None, str | None]
    prompt: tuple[str | None, str | None]


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
_EDGE_SNAPSHOTS = PreparedStatement(select(SESSION.c.diff_basis, *_EDGES).where(SESSION.c.id == bindparam("session")))


def edge_snapshots(connection: Connection, session_id: str, prompt_id: str) -> EdgeSnapshots:
    found = connection.execute(_EDGE_SNAPSHOTS, {"session": session_id, "prompt": prompt_id}).one_or_none()
    basis, *edges = found or 5 * [None]
    return EdgeSnapshots(basis, (edges[0], edges[1]), (edges[2], edges[3]))


_ANSWERS = select(MESSAGE.c.id).where(_IS_ANSWER).order_by(MESSAGE.c.seq)


def answers_to(connection: Connection, session_id: str, message_id: str) -> list[str]:
    asked = {"session": session_id, "prompt": message_id}
    return list(connection.execute(_ANSWERS, asked).scalars())


_UNANSWERED = PreparedStatement(_WAITING_PROMPT)


def unanswered_prompt(connection: Connection, session_id: str) -> str | None:
    """The newest prompt that waits and came after all that was answered."""
    return connection.execute(_UNANSWERED, {"session": session_id}).scalar_one_or_none()
