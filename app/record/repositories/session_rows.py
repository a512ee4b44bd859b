"""Projects and their approvals, sessions, and the links that show them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
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
    cast,
    false,
    func,
    literal,
    literal_column,
    or_,
    select,
)

from app.record.repositories.work_rows import HELD_SESSIONS
from app.record.tables import APPROVAL, DIFF, IMPORTED_SESSION, MESSAGE, PART, PROJECT, SESSION, SHARE, SUMS, TODO, parsed
from app.record.text_search import fold
from app.schema.errors import InvalidCursor

# Pages of an ordered list, beside an item that a client has seen.


@dataclass(frozen=True, slots=True)
class PageBeside:
    """`limit` items beside the one with the id `anchor`, `newer` or older than it; without an anchor the first ones in the wanted
    order."""

    limit: int
    newest_first: bool = True
    anchor: str | None = None
    newer: bool = False

    @property
    def upward(self) -> bool:
        """Whether the page goes from older items to newer ones."""
        return self.newer if self.anchor is not None else not self.newest_first


SESSION_COLUMNS: tuple[Any, ...] = (SESSION.c.body, *(SESSION.c[name] for name in SUMS))
"""All columns that are shown of a session."""


def session_value(row: Any) -> dict[str, Any] | None:
    """The JSON of a session, from a row with SESSION_COLUMNS; None for a damaged one."""
    body = parsed(row.body)
    if body is None:
        return None
    cache = {"read": row.tokens_cache_read, "write": row.tokens_cache_write}
    tokens = {"input": row.tokens_input, "output": row.tokens_output, "reasoning": row.tokens_reasoning, "cache": cache}
    return {"cost": row.cost, "tokens": tokens, **body}


def session_json(row: Any) -> bytes | None:
    value = session_value(row)
    return None if value is None else orjson.dumps(value)


# Projects.


def projects(connection: Connection, project_ids: Collection[str] | None = None) -> list[str]:
    """The bodies of some or all projects, the newest used first."""
    query = select(PROJECT.c.body).order_by(PROJECT.c.updated.desc(), PROJECT.c.id)
    if project_ids is not None:
        query = query.where(PROJECT.c.id.in_(project_ids))
    return list(connection.execute(query).scalars())


def project_bytes(connection: Connection, project_id: str) -> int:
    """The bytes of the messages and parts of a project's sessions. Reads all of them."""
    sessions = select(SESSION.c.id).where(SESSION.c.project_id == project_id)
    sums = [select(func.sum(_bytes(connection, of.c.body))).where(of.c.session_id.in_(sessions)) for of in (MESSAGE, PART)]
    return sum(connection.execute(query).scalar_one() or 0 for query in sums)


def _bytes(connection: Connection, body: ColumnElement[str]) -> ColumnElement[int]:
    """SQLite has `octet_length` only since 3.43."""
    return func.length(cast(body, LargeBinary)) if connection.dialect.name == "sqlite" else func.octet_length(body)


def all_approvals(connection: Connection) -> Sequence[Row[Any]]:
    """(project_id, permission, pattern), ordered by these."""
    columns = (APPROVAL.c.project_id, APPROVAL.c.permission, APPROVAL.c.pattern)
    return connection.execute(select(*columns).order_by(*columns)).all()


_APPROVALS = (
    select(APPROVAL).where(APPROVAL.c.project_id == bindparam("project")).order_by(APPROVAL.c.permission, APPROVAL.c.pattern)
)


def approvals(connection: Connection, project_id: str) -> list[tuple[str, str]]:
    """(permission, pattern) of every approval in a project."""
    return [(row.permission, row.pattern) for row in connection.execute(_APPROVALS, {"project": project_id})]


# One session.

_OF_ID = SESSION.c.id == bindparam("id")
_ONE_SESSION: Select[Any] = select(*SESSION_COLUMNS, SESSION.c.diff_basis).where(_OF_ID)


def stored_session(connection: Connection, session_id: str) -> Row[Any] | None:
    """With SESSION_COLUMNS and `diff_basis`."""
    return connection.execute(_ONE_SESSION, {"id": session_id}).one_or_none()


_SESSION_AND_PROMPT = _ONE_SESSION.add_columns(MESSAGE.c.body.label("prompt")).outerjoin(
    MESSAGE, and_(MESSAGE.c.session_id == SESSION.c.id, MESSAGE.c.id == bindparam("message"))
)


def session_and_prompt(connection: Connection, session_id: str, prompt_id: str) -> Row[Any] | None:
    """As `stored_session`, and the body of the `prompt`, which is None for an unknown one."""
    return connection.execute(_SESSION_AND_PROMPT, {"id": session_id, "message": prompt_id}).one_or_none()


_NEWEST_OF_ID = select(MESSAGE.c.id).where(MESSAGE.c.session_id == bindparam("id")).order_by(MESSAGE.c.seq.desc()).limit(1)
_NEWEST_MESSAGE = _NEWEST_OF_ID.scalar_subquery()
_NEWEST_PART = (
    select(PART.c.id)
    .where(PART.c.session_id == bindparam("id"), PART.c.message_id == _NEWEST_MESSAGE)
    .order_by(PART.c.seq.desc())
    .limit(1)
)
_NEWEST_PROMPT = _NEWEST_OF_ID.where(MESSAGE.c.role == "user").with_only_columns(
    func.coalesce(MESSAGE.c.live_body, MESSAGE.c.body)
)
_SESSION_TO_PROMPT = _ONE_SESSION.add_columns(
    _NEWEST_MESSAGE.label("message"),
    _NEWEST_PART.scalar_subquery().label("part"),
    _NEWEST_PROMPT.scalar_subquery().label("newest_prompt"),
)


def session_to_prompt(connection: Connection, session_id: str) -> Row[Any] | None:
    """As `stored_session`, with the ids of the newest `message` and its newest `part`, and the `newest_prompt` without diffs."""
    return connection.execute(_SESSION_TO_PROMPT, {"id": session_id}).one_or_none()


_WAITING_PROMPTS = (
    select(func.count())
    .select_from(MESSAGE)
    .where(MESSAGE.c.session_id == bindparam("id"), MESSAGE.c.role == "user", MESSAGE.c.open)
)
_SESSION_AND_WAITING_PROMPTS = _ONE_SESSION.add_columns(_WAITING_PROMPTS.scalar_subquery().label("waiting"))


def session_and_waiting_prompts(connection: Connection, session_id: str) -> Row[Any] | None:
    """As `stored_session`, with the number of prompts that are `waiting` for an answer."""
    return connection.execute(_SESSION_AND_WAITING_PROMPTS, {"id": session_id}).one_or_none()


_PROJECT_OF = select(SESSION.c.project_id).where(_OF_ID)


def project_of(connection: Connection, session_id: str) -> str | None:
    return connection.execute(_PROJECT_OF, {"id": session_id}).scalar_one_or_none()


def session_state(connection: Connection, session_id: str) -> Row[Any] | None:
    """As `stored_session`, with the number of `messages` and the sequence of the `newest_part`. Differs when somebody has changed
    the session."""
    messages = select(func.count()).select_from(MESSAGE).where(MESSAGE.c.session_id == session_id).scalar_subquery()
    newest = select(func.max(PART.c.seq)).where(PART.c.session_id == session_id).scalar_subquery()
    query = _ONE_SESSION.add_columns(messages.label("messages"), newest.label("newest_part"))
    return connection.execute(query, {"id": session_id}).one_or_none()


_KEYS = {PROJECT: PROJECT.c.id, TODO: TODO.c.session_id, DIFF: DIFF.c.session_id}
_BODIES = {of: select(of.c.body).where(key == bindparam("key")) for of, key in _KEYS.items()}


def body_of(connection: Connection, of: Any, key: str) -> str | None:
    """The body of a project by its id, or the todos or the diff of a session."""
    return connection.execute(_BODIES[of], {"key": key}).scalar_one_or_none()


# Some sessions.

_AMONG = SESSION.c.id.in_(bindparam("ids", expanding=True))
_CHILDREN = (
    select(SESSION.c.id, *SESSION_COLUMNS)
    .where(SESSION.c.parent_id.in_(bindparam("ids", expanding=True)))
    .order_by(SESSION.c.seq)
)


def some_sessions(connection: Connection, session_ids: Collection[str]) -> Sequence[Row[Any]]:
    """The rows of those sessions that exist."""
    return connection.execute(select(*SESSION_COLUMNS).where(_AMONG), {"ids": list(session_ids)}).all()


def children_of(connection: Connection, session_ids: Collection[str]) -> list[str]:
    return [row.id for row in connection.execute(_CHILDREN, {"ids": list(session_ids)})]


def session_tree(connection: Connection, session_id: str) -> list[Row[Any]]:
    """A session and all its descendants, children before their parents."""
    root = stored_session(connection, session_id)
    found: list[Row[Any]] = [] if root is None else [root]
    generation, seen = [session_id], {session_id}
    while generation:
        # What was imported from a damaged source may be its own ancestor.
        children = [row for row in connection.execute(_CHILDREN, {"ids": generation}) if row.id not in seen]
        found[:0] = children
        generation = [row.id for row in children]
        seen.update(generation)
    return found


_OWNERS = select(SESSION.c.id, SESSION.c.owner).where(_AMONG)


def owners(connection: Connection, session_ids: Collection[str]) -> dict[str, str]:
    """The owners of these sessions, by session; without unknown ones."""
    return {row.id: row.owner for row in connection.execute(_OWNERS, {"ids": list(session_ids)})}


def has_owned_sessions(connection: Connection) -> bool:
    query = select(SESSION.c.seq).where(SESSION.c.owner != literal_column("''")).limit(1)
    return connection.execute(query).scalar_one_or_none() is not None


def session_ages(connection: Connection) -> Sequence[Row[Any]]:
    """The ids and times of all sessions, oldest first."""
    return connection.execute(select(SESSION.c.id, SESSION.c.parent_id, SESSION.c.updated).order_by(SESSION.c.seq)).all()


def lock_sessions(connection: Connection, session_ids: Collection[str]) -> Sequence[Row[Any]]:
    """The rows of those that exist. On PostgreSQL, as the rows are locked, nothing is added to them until the transaction
    ends."""
    query = select(SESSION.c.id, SESSION.c.updated).where(_AMONG).order_by(SESSION.c.id).with_for_update()
    return connection.execute(query, {"ids": list(session_ids)}).all()


def lock_new_sessions(connection: Connection, session_ids: Collection[str]) -> set[str]:
    """The ids that are taken. Until the transaction ends no other server takes the rest."""
    if connection.dialect.name == "postgresql":
        lock = select(func.pg_advisory_xact_lock(func.hashtextextended(bindparam("id", type_=Text), 0)))
        for session_id in sorted(session_ids):
            connection.execute(lock, {"id": session_id})
    return set(owners(connection, session_ids))


def imported_sessions(connection: Connection) -> dict[str, str]:
    """Fingerprints of the sessions that were imported from OpenCode, by id."""
    return {row.id: row.fingerprint for row in connection.execute(select(IMPORTED_SESSION))}


def unfinished_reverts(connection: Connection) -> list[tuple[str, str]]:
    """(session, directory) of sessions whose server was killed while it restored files."""
    query = select(SESSION.c.id, SESSION.c.directory).where(SESSION.c.reverting, SESSION.c.id.not_in(HELD_SESSIONS))
    return [(row.id, row.directory) for row in connection.execute(query)]


# Lists of sessions.


@dataclass(frozen=True, slots=True)
class SessionFilter:
    """Fields that are None filter nothing. `directories`: sessions in one of them. `path`: sessions there or below.
    `updated_since` and `updated_before` in epoch milliseconds. `search`: a part of the title."""

    project_id: str | None = None
    directories: Collection[str] | None = None
    path: str | None = None
    parent_id: str | None = None
    roots_only: bool = False
    owner: str | None = None
    search: str | None = None
    updated_since: float | None = None
    updated_before: float | None = None
    archived: bool = True
    """False leaves archived sessions out."""


def session_page(
    connection: Connection, wanted: SessionFilter, limit: int | None = None, before: int | None = None
) -> tuple[Sequence[Row[Any]], int | None]:
    """Newest created first, up to a limit, of sessions created before the one with a sequence; and where the next page begins, if
    there is one."""
    query = _sessions(wanted).order_by(SESSION.c.seq.desc())
    if before is not None:
        query = query.where(SESSION.c.seq < before)
    if limit is None:
        return connection.execute(query).all(), None
    rows = connection.execute(query.limit(limit + 1)).all()
    return rows[:limit], rows[limit - 1].seq if len(rows) > limit else None


def sessions_beside(connection: Connection, wanted: SessionFilter, at: PageBeside) -> Sequence[Row[Any]]:
    """The sessions beside an anchor, in the wanted order of creation. Raises InvalidCursor."""
    query = _sessions(wanted)
    if at.anchor is not None:
        seq = connection.execute(select(SESSION.c.seq).where(SESSION.c.id == at.anchor)).scalar_one_or_none()
        if seq is None:
            raise InvalidCursor(f"{at.anchor} is not there any more")
        query = query.where(SESSION.c.seq > seq if at.upward else SESSION.c.seq < seq)
    found = connection.execute(query.order_by(SESSION.c.seq if at.upward else SESSION.c.seq.desc()).limit(at.limit)).all()
    return found if at.upward != at.newest_first else found[::-1]


def updated_sessions(connection: Connection, wanted: SessionFilter, limit: int) -> tuple[Sequence[Row[Any]], int | None]:
    """Newest update first; and the time before which the next page's sessions were updated. Sessions updated in one millisecond
    are on one page, which may have more than the limit if it has only these."""
    query = _sessions(wanted).order_by(SESSION.c.updated.desc(), SESSION.c.seq.desc())
    rows = connection.execute(query.limit(limit + 1)).all()
    if len(rows) <= limit:
        return rows, None
    begun = rows[-1].updated
    page = [row for row in rows if row.updated != begun] or connection.execute(query.where(SESSION.c.updated == begun)).all()
    return page, page[-1].updated


def directories_of_sessions(connection: Connection, owner: str | None) -> list[str]:
    query = select(SESSION.c.directory).distinct().where(*_conditions(SessionFilter(owner=owner)))
    return list(connection.execute(query).scalars())


def _sessions(wanted: SessionFilter) -> Select[Any]:
    return select(*SESSION_COLUMNS, SESSION.c.seq, SESSION.c.project_id, SESSION.c.updated).where(*_conditions(wanted))


def _conditions(wanted: SessionFilter) -> Iterator[ColumnElement[bool]]:
    equal: Mapping[Any, str | None] = {
        SESSION.c.project_id: wanted.project_id,
        SESSION.c.parent_id: wanted.parent_id,
        SESSION.c.owner: wanted.owner,
    }
    yield from (column == value for column, value in equal.items() if value is not None)
    if wanted.owner is not None:
        yield SESSION.c.owner != literal_column("''")
    if wanted.directories is not None:
        yield SESSION.c.directory.in_(wanted.directories)
    if wanted.path is not None:
        below = f"{wanted.path}/"
        # Case-sensitive, unlike SQLite's LIKE.
        yield or_(SESSION.c.path == wanted.path, func.substr(SESSION.c.path, 1, len(below)) == below)
    if wanted.roots_only:
        yield SESSION.c.parent_id.is_(None)
    if not wanted.archived:
        yield ~SESSION.c.archived
    if wanted.updated_since is not None:
        yield SESSION.c.updated >= literal(wanted.updated_since, Float)
    if wanted.updated_before is not None:
        yield SESSION.c.updated < literal(wanted.updated_before, Float)
    if wanted.search:
        title = fold(wanted.search)
        yield SESSION.c.title_folded.contains(title, autoescape=True) if title else false()


# Links.


def share_of(connection: Connection, session_id: str) -> str | None:
    return connection.execute(select(SHARE.c.id).where(SHARE.c.session_id == session_id)).scalar_one_or_none()


def shared_session(connection: Connection, share_id: str) -> str | None:
    return connection.execute(select(SHARE.c.session_id).where(SHARE.c.id == share_id)).scalar_one_or_none()
