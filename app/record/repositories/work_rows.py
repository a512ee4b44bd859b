"""Which server works on which session, what dead servers have left, and what waits: requests to users, and prompts for a turn of
their own."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    case,
    cast,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from app.record.tables import LEASE, MESSAGE, PENDING_REQUEST, QUEUED_PROMPT, REPLICA, SESSION
from app.util import clock


def now_ms(dialect: str) -> ColumnElement[int]:
    """Milliseconds since the epoch by the database's clock, so that servers on several machines agree on the time. For SQLite
    this is the server's own clock, which tests can set."""
    if dialect == "sqlite":
        return bindparam("now", callable_=clock.now_ms, type_=BigInteger)
    return cast(func.extract("epoch", func.clock_timestamp()) * 1000, BigInteger)


_NOW = {dialect: now_ms(dialect) for dialect in ("sqlite", "postgresql")}
_IS_HELD = LEASE.c.owner != literal_column("''")
"""No bound value: the partial index is used only if the statement itself has the condition."""
HELD_SESSIONS = select(LEASE.c.session_id).where(_IS_HELD)


def in_or_not_leased(session_id: ColumnElement[str], sessions: Collection[str] | None) -> ColumnElement[bool]:
    return session_id.not_in(HELD_SESSIONS) if sessions is None else session_id.in_(sessions)


# Leases.


def _leases(connection: Connection, wanted: ColumnElement[bool]) -> Select[Any]:
    return select(LEASE, (_NOW[connection.dialect.name] - LEASE.c.heartbeat).label("age")).where(wanted)


def leases(connection: Connection) -> Sequence[Row[Any]]:
    """Leases that are held. `age`: milliseconds since the heartbeat."""
    return connection.execute(_leases(connection, _IS_HELD)).all()


def lease_of(connection: Connection, session_id: str) -> Row[Any] | None:
    """The lease, even if no server holds it: its generation goes on."""
    return connection.execute(_leases(connection, LEASE.c.session_id == session_id)).one_or_none()


def held_among(connection: Connection, session_ids: Collection[str]) -> list[str]:
    """Those of the sessions that a server works on."""
    return list(connection.execute(HELD_SESSIONS.where(LEASE.c.session_id.in_(session_ids))).scalars())


def held_sessions(connection: Connection, directory: str | None = None) -> dict[str, str]:
    """The sessions that a server works on, in a directory or in any; and their directories."""
    where = func.coalesce(LEASE.c.directory, SESSION.c.directory).label("directory")
    held = select(LEASE.c.session_id, where).join(SESSION, SESSION.c.id == LEASE.c.session_id).where(_IS_HELD)
    return {row.session_id: row.directory for row in connection.execute(held) if directory in (None, row.directory)}


# Servers.


def replicas(connection: Connection) -> Sequence[Row[Any]]:
    """All servers, in the order of their starts. `age`: milliseconds since the heartbeat; `running`: the number of sessions that
    each runs."""
    age = (_NOW[connection.dialect.name] - REPLICA.c.heartbeat).label("age")
    running = select(func.count()).select_from(LEASE).where(LEASE.c.owner == REPLICA.c.id).scalar_subquery().label("running")
    return connection.execute(select(REPLICA, age, running).order_by(REPLICA.c.started, REPLICA.c.id)).all()


def orphaned_messages(connection: Connection, sessions: Collection[str] | None = None) -> list[tuple[str, str, str]]:
    """(session, message, role) of open answers, and of prompts that wait for one: in `sessions`, or in all that no server works
    on."""
    query = select(MESSAGE.c.session_id, MESSAGE.c.id, MESSAGE.c.role).order_by(MESSAGE.c.seq)
    query = query.where(MESSAGE.c.open, in_or_not_leased(MESSAGE.c.session_id, sessions))
    return [(row.session_id, row.id, row.role) for row in connection.execute(query)]


def abandoned_sessions(connection: Connection) -> Sequence[Row[Any]]:
    """(session_id, directory, answered) of sessions that no server works on, with an unanswered prompt or an open answer."""
    answer, is_answer = MESSAGE.alias("answer"), MESSAGE.c.role == "assistant"
    has_answer = exists().where(
        answer.c.session_id == MESSAGE.c.session_id, answer.c.role == "assistant", answer.c.parent_id == MESSAGE.c.id
    )
    query = (
        select(MESSAGE.c.session_id, SESSION.c.directory, func.max(case((is_answer, 1), else_=0)).label("answered"))
        .join(SESSION, SESSION.c.id == MESSAGE.c.session_id)
        .where(MESSAGE.c.open, MESSAGE.c.session_id.not_in(HELD_SESSIONS), or_(is_answer, ~has_answer))
        .group_by(MESSAGE.c.session_id, SESSION.c.directory)
    )
    return connection.execute(query).all()


# Requests.

_ANY = select(PENDING_REQUEST).order_by(PENDING_REQUEST.c.seq)
_WAITING = _ANY.where(PENDING_REQUEST.c.answer.is_(None))


def pending_requests(connection: Connection, kind: str, directory: str, owner: str | None = None) -> Sequence[Row[Any]]:
    """`owner`: only requests of this user's sessions."""
    query = _WAITING.where(PENDING_REQUEST.c.kind == kind, PENDING_REQUEST.c.directory == directory)
    if owner is not None:
        query = query.where(PENDING_REQUEST.c.session_id.in_(select(SESSION.c.id).where(SESSION.c.owner == owner)))
    return connection.execute(query).all()


def session_requests(connection: Connection, kind: str, session_id: str) -> Sequence[Row[Any]]:
    query = _WAITING.where(PENDING_REQUEST.c.kind == kind, PENDING_REQUEST.c.session_id == session_id)
    return connection.execute(query).all()


_ONE_REQUEST = _ANY.where(PENDING_REQUEST.c.id == bindparam("id"))


def find_request(connection: Connection, request_id: str) -> Row[Any] | None:
    """The request, whether it waits or is answered."""
    return connection.execute(_ONE_REQUEST, {"id": request_id}).one_or_none()


def is_pending(connection: Connection, request_id: str) -> bool:
    found = find_request(connection, request_id)
    return found is not None and found.answer is None


_ANSWERED = _ANY.where(PENDING_REQUEST.c.id.in_(bindparam("ids", expanding=True)), PENDING_REQUEST.c.answer.is_not(None))


def answered_requests(connection: Connection, request_ids: Collection[str]) -> Sequence[Row[Any]]:
    return connection.execute(_ANSWERED, {"ids": list(request_ids)}).all()


def orphaned_requests(connection: Connection, kind: str, sessions: Collection[str] | None = None) -> Sequence[Row[Any]]:
    """The requests in `sessions`, or in all sessions without a lease."""
    query = _ANY.where(PENDING_REQUEST.c.kind == kind, in_or_not_leased(PENDING_REQUEST.c.session_id, sessions))
    return connection.execute(query).all()


# Prompts.

_OF_SESSION = QUEUED_PROMPT.c.session_id == bindparam("session")
_QUEUED_PROMPTS = select(QUEUED_PROMPT).where(_OF_SESSION).order_by(QUEUED_PROMPT.c.seq)


def queued_prompts(connection: Connection, session_id: str) -> Sequence[Row[Any]]:
    """The session's prompts that wait, in the order of their turns."""
    return connection.execute(_QUEUED_PROMPTS, {"session": session_id}).all()


_QUEUED_PROMPT = select(QUEUED_PROMPT.c.seq).where(_OF_SESSION, QUEUED_PROMPT.c.id == bindparam("id")).with_for_update()


def is_queued(connection: Connection, session_id: str, queued_id: str) -> bool:
    """Until the transaction ends, no other one takes the prompt from the queue."""
    return connection.execute(_QUEUED_PROMPT, {"session": session_id, "id": queued_id}).one_or_none() is not None


def queued_sessions(connection: Connection) -> Sequence[str]:
    """The sessions in which prompts wait, whoever works on them."""
    return connection.execute(select(QUEUED_PROMPT.c.session_id).distinct()).scalars().all()


def waiting_queues(connection: Connection) -> list[tuple[str, int]]:
    """(session, `seq` of its first queued prompt) of sessions that no server works on."""
    query = select(QUEUED_PROMPT.c.session_id, func.min(QUEUED_PROMPT.c.seq).label("first"))
    waiting = query.where(QUEUED_PROMPT.c.session_id.not_in(HELD_SESSIONS)).group_by(QUEUED_PROMPT.c.session_id)
    return [(row.session_id, row.first) for row in connection.execute(waiting)]
