"""Which server works on which session, and what is left of servers that do no more."""

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

from app.storage.tables import LEASE, MESSAGE, REPLICA, SESSION
from app.util import clock


def now_ms(dialect: str) -> ColumnElement[int]:
    """Milliseconds since the epoch by the database's clock, so that servers on several machines agree on the time. For SQLite
    this is the server's own clock, which tests can set."""
    if dialect == "sqlite":
        return bindparam("now", callable_=clock.now_ms, type_=BigInteger)
    return cast(func.extract("epoch", func.clock_timestamp()) * 1000, BigInteger)


_NOW = {dialect: now_ms(dialect) for dialect in ("sqlite", "postgresql")}
_IS_HELD = LEASE.c.owner != literal_column("''")
"""No bound value: the partial index is used only where the statement itself says it."""
HELD_SESSIONS = select(LEASE.c.session_id).where(_IS_HELD)


def in_or_not_leased(session_id: ColumnElement[str], sessions: Collection[str] | None) -> ColumnElement[bool]:
    return session_id.not_in(HELD_SESSIONS) if sessions is None else session_id.in_(sessions)


# Leases.


def _leases(connection: Connection, wanted: ColumnElement[bool]) -> Select[Any]:
    return select(LEASE, (_NOW[connection.dialect.name] - LEASE.c.heartbeat).label("age")).where(wanted)


def leases(connection: Connection) -> Sequence[Row[Any]]:
    """Those that are held. With `age`: milliseconds since the heartbeat."""
    return connection.execute(_leases(connection, _IS_HELD)).all()


def lease_of(connection: Connection, session_id: str) -> Row[Any] | None:
    """Also where nothing is held: its generation goes on."""
    return connection.execute(_leases(connection, LEASE.c.session_id == session_id)).one_or_none()


def aborting_leases(connection: Connection, owner: str) -> list[str]:
    """Sessions that a server holds and another wants to be idle."""
    return [row.session_id for row in leases(connection) if row.owner == owner and row.aborting]


def lease_statuses(connection: Connection, directory: str) -> Sequence[Row[Any]]:
    """Of the sessions that servers hold in a directory."""
    return [row for row in leases(connection) if row.directory == directory and row.status is not None]


def held_among(connection: Connection, session_ids: Collection[str]) -> list[str]:
    """Those that a server works on."""
    return list(connection.execute(HELD_SESSIONS.where(LEASE.c.session_id.in_(session_ids))).scalars())


def held_sessions(connection: Connection, directory: str | None = None) -> dict[str, str]:
    """Sessions that a server works on in a directory, or in any; and where."""
    where = func.coalesce(LEASE.c.directory, SESSION.c.directory).label("directory")
    held = select(LEASE.c.session_id, where).join(SESSION, SESSION.c.id == LEASE.c.session_id).where(_IS_HELD)
    return {row.session_id: row.directory for row in connection.execute(held) if directory in (None, row.directory)}


# Servers.


def replicas(connection: Connection) -> Sequence[Row[Any]]:
    """In the order of their starts. With `age`: milliseconds since the heartbeat; `running`: the sessions that each works on."""
    age = (_NOW[connection.dialect.name] - REPLICA.c.heartbeat).label("age")
    running = select(func.count()).select_from(LEASE).where(LEASE.c.owner == REPLICA.c.id).scalar_subquery().label("running")
    return connection.execute(select(REPLICA, age, running).order_by(REPLICA.c.started, REPLICA.c.id)).all()


def orphaned_messages(connection: Connection, sessions: Collection[str] | None = None) -> list[tuple[str, str, str]]:
    """(session, message, role) of answers left open, and of prompts that wait for one: in `sessions`, or in all that no server
    works on."""
    query = select(MESSAGE.c.session_id, MESSAGE.c.id, MESSAGE.c.role).order_by(MESSAGE.c.seq)
    query = query.where(MESSAGE.c.open, in_or_not_leased(MESSAGE.c.session_id, sessions))
    return [(row.session_id, row.id, row.role) for row in connection.execute(query)]


_ANSWER = MESSAGE.alias("answer")
_HAS_ANSWER = exists().where(
    _ANSWER.c.session_id == MESSAGE.c.session_id, _ANSWER.c.role == "assistant", _ANSWER.c.parent_id == MESSAGE.c.id
)
_IS_ANSWERED = func.max(case((MESSAGE.c.role == "assistant", 1), else_=0))
_ABANDONED_SESSIONS = (
    select(MESSAGE.c.session_id, SESSION.c.directory, _IS_ANSWERED.label("answered"))
    .join(SESSION, SESSION.c.id == MESSAGE.c.session_id)
    .where(MESSAGE.c.open, MESSAGE.c.session_id.not_in(HELD_SESSIONS))
    .where(or_(MESSAGE.c.role == "assistant", ~_HAS_ANSWER))
    .group_by(MESSAGE.c.session_id, SESSION.c.directory)
)


def abandoned_sessions(connection: Connection) -> Sequence[Row[Any]]:
    """(session_id, directory, answered) of sessions that no server works on: with a prompt without an answer, or an open one."""
    return connection.execute(_ABANDONED_SESSIONS).all()
