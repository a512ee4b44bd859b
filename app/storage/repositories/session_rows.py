"""Sessions, and the links that show them."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Float,
    Row,
    Select,
    Text,
    and_,
    bindparam,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
)

from app.schema.errors import NotFound
from app.storage.prepared import PreparedStatement
from app.storage.repositories.lease_rows import HELD_SESSIONS
from app.storage.session_head import SESSION_JSON
from app.storage.tables import IMPORTED_SESSION, MESSAGE, PART, SESSION, SHARE


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


_ONE_SESSION = select(SESSION_JSON).where(SESSION.c.id == bindparam("id"))
_SESSION_BODY = PreparedStatement(_ONE_SESSION)


def session_body(connection: Connection, session_id: str) -> str | None:
    return connection.execute(_SESSION_BODY, {"id": session_id}).scalar_one_or_none()


_SESSION_AND_DIFF_BASIS = PreparedStatement(_ONE_SESSION.add_columns(SESSION.c.diff_basis))


def session_and_diff_basis(connection: Connection, session_id: str) -> Row[Any] | None:
    return connection.execute(_SESSION_AND_DIFF_BASIS, {"id": session_id}).one_or_none()


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


_LOCK_NEW_SESSION = select(func.pg_advisory_xact_lock(func.hashtextextended(bindparam("id", type_=Text), 0)))


def lock_new_sessions(connection: Connection, session_ids: Collection[str]) -> set[str]:
    """Those of the ids that are taken. Until the transaction ends no other server takes the rest."""
    if connection.dialect.name == "postgresql":
        for session_id in sorted(session_ids):
            connection.execute(_LOCK_NEW_SESSION, {"id": session_id})
    return set(owners(connection, session_ids))


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


_SESSION_AND_PROMPT = PreparedStatement(
    select(SESSION_JSON, SESSION.c.diff_basis, MESSAGE.c.body.label("prompt"))
    .outerjoin(MESSAGE, and_(MESSAGE.c.session_id == SESSION.c.id, MESSAGE.c.id == bindparam("message")))
    .where(SESSION.c.id == bindparam("session"))
)


def session_and_prompt(connection: Connection, session_id: str, prompt_id: str) -> Row[Any] | None:
    """The session's `body` and `diff_basis`, and the body of the `prompt`, which is None for an unknown one."""
    return connection.execute(_SESSION_AND_PROMPT, {"session": session_id, "message": prompt_id}).one_or_none()


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
_SESSION_TO_PROMPT = PreparedStatement(
    _ONE_SESSION.add_columns(_NEWEST_MESSAGE.label("message"), _NEWEST_PART.label("part"), _NEWEST_PROMPT.label("newest_prompt"))
)


def session_to_prompt(connection: Connection, session_id: str) -> Row[Any] | None:
    """The session's `body`, the ids of its newest `message` and that one's newest `part`, the `newest_prompt` without diffs."""
    return connection.execute(_SESSION_TO_PROMPT, {"id": session_id}).one_or_none()


_WAITING_PROMPTS = (
    select(func.count())
    .select_from(MESSAGE)
    .where(MESSAGE.c.session_id == bindparam("id"), MESSAGE.c.role == "user", MESSAGE.c.open)
    .scalar_subquery()
    .label("waiting")
)
_SESSION_AND_WAITING_PROMPTS = PreparedStatement(_ONE_SESSION.add_columns(_WAITING_PROMPTS))


def session_and_waiting_prompts(connection: Connection, session_id: str) -> Row[Any] | None:
    """The session's `body`, and how many prompts are `waiting` for an answer."""
    return connection.execute(_SESSION_AND_WAITING_PROMPTS, {"id": session_id}).one_or_none()


_UNFINISHED_REVERTS = select(SESSION.c.id, SESSION.c.directory).where(SESSION.c.reverting, SESSION.c.id.not_in(HELD_SESSIONS))


def unfinished_reverts(connection: Connection) -> list[tuple[str, str]]:
    """(session, directory) of sessions whose server was killed while it restored files."""
    return [(row.id, row.directory) for row in connection.execute(_UNFINISHED_REVERTS).all()]


def body_of(connection: Connection, of: Any, **key: str) -> str | None:
    query = select(of.c.body).where(*(of.c[column] == value for column, value in key.items()))
    return connection.execute(query).scalar_one_or_none()


def share_of(connection: Connection, session_id: str) -> str | None:
    return connection.execute(select(SHARE.c.id).where(SHARE.c.session_id == session_id)).scalar_one_or_none()


def shared_session(connection: Connection, share_id: str) -> str | None:
    return connection.execute(select(SHARE.c.session_id).where(SHARE.c.id == share_id)).scalar_one_or_none()


def _extent(of: Any) -> list[ColumnElement[Any]]:
    in_session = of.c.session_id == SHARE.c.session_id
    return [select(what).where(in_session).scalar_subquery() for what in (func.max(of.c.seq), func.count())]


_SHARED_REVISION = (
    select(SHARE.c.session_id, SESSION_JSON, SESSION.c.diff_basis, *_extent(MESSAGE), *_extent(PART))
    .join(SESSION, SESSION.c.id == SHARE.c.session_id)
    .where(SHARE.c.id == bindparam("share"))
)


def shared_revision(connection: Connection, share_id: str) -> Row[Any] | None:
    """The session that a link shows, with values that change when any server adds, removes or changes messages."""
    return connection.execute(_SHARED_REVISION, {"share": share_id}).one_or_none()


def project_of(connection: Connection, session_id: str) -> str | None:
    return connection.execute(select(SESSION.c.project_id).where(SESSION.c.id == session_id)).scalar_one_or_none()
