"""Which server works on which session, and what is left of servers that do no more."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, case, exists, func, literal_column, or_, select

from app.storage.now import now_ms
from app.storage.tables import LEASE, MESSAGE, REPLICA, SESSION

IS_HELD = LEASE.c.owner != literal_column("''")
"""No bound value: the partial index is used only where the statement itself says it."""


def is_held(connection: Connection, session_id: str) -> bool:
    """Whether a server runs the session."""
    query = select(LEASE.c.session_id).where(IS_HELD, LEASE.c.session_id == session_id)
    return connection.execute(query).scalar_one_or_none() is not None


def orphaned_messages(connection: Connection, sessions: Collection[str] | None = None) -> list[tuple[str, str, str]]:
    """(session, message, role) of answers left open, and of prompts that wait for one: in `sessions`, or in all that no server
    works on."""
    query = (
        select(MESSAGE.c.session_id, MESSAGE.c.id, MESSAGE.c.role)
        .where(MESSAGE.c.open, in_or_not_leased(MESSAGE.c.session_id, sessions))
        .order_by(MESSAGE.c.seq)
    )
    return [(row.session_id, row.id, row.role) for row in connection.execute(query).all()]


HELD_SESSIONS = select(LEASE.c.session_id).where(IS_HELD)
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
    .where(MESSAGE.c.open, MESSAGE.c.session_id.not_in(HELD_SESSIONS))
    .where(or_(MESSAGE.c.role == "assistant", ~_ANSWER_TO_PROMPT))
    .group_by(MESSAGE.c.session_id, SESSION.c.directory)
)


def abandoned_sessions(connection: Connection) -> Sequence[Row[Any]]:
    """(session_id, directory, answered) of sessions that no server works on: with a prompt without an answer, or an open one."""
    return connection.execute(_ABANDONED_SESSIONS).all()


def in_or_not_leased(session_id: ColumnElement[str], sessions: Collection[str] | None) -> ColumnElement[bool]:
    return session_id.not_in(HELD_SESSIONS) if sessions is None else session_id.in_(sessions)


def leases(connection: Connection) -> Sequence[Row[Any]]:
    """Those that are held. With `age`: milliseconds since the heartbeat."""
    return connection.execute(_leases(connection).where(IS_HELD)).all()


def aborting_leases(connection: Connection, owner: str) -> list[str]:
    """Sessions that a server holds and another wants to be idle."""
    query = select(LEASE.c.session_id).where(IS_HELD, LEASE.c.owner == owner, LEASE.c.aborting)
    return list(connection.execute(query).scalars())


def lease_statuses(connection: Connection, directory: str) -> Sequence[Row[Any]]:
    """Of the sessions that servers hold in a directory."""
    query = _leases(connection).add_columns(LEASE.c.status)
    return connection.execute(query.where(IS_HELD, LEASE.c.directory == directory, LEASE.c.status.is_not(None))).all()


def lease_of(connection: Connection, session_id: str) -> Row[Any] | None:
    """Also where nothing is held: its generation goes on."""
    return connection.execute(_leases(connection).where(LEASE.c.session_id == session_id)).one_or_none()


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


def _leases(connection: Connection) -> Select[Any]:
    return _LEASES[connection.dialect.name]


def replicas(connection: Connection) -> Sequence[Row[Any]]:
    """In the order of their starts. With `age`: milliseconds since the heartbeat; `running`: the sessions that each works on."""
    age = (now_ms(connection.dialect.name) - REPLICA.c.heartbeat).label("age")
    running = select(func.count()).select_from(LEASE).where(LEASE.c.owner == REPLICA.c.id).scalar_subquery().label("running")
    return connection.execute(select(REPLICA, age, running).order_by(REPLICA.c.started, REPLICA.c.id)).all()


def held_among(connection: Connection, session_ids: Collection[str]) -> list[str]:
    """Those that a server works on."""
    return list(connection.execute(HELD_SESSIONS.where(LEASE.c.session_id.in_(session_ids))).scalars())


def held_sessions(connection: Connection, directory: str | None) -> list[str]:
    """Sessions that a server works on in a directory, or in any."""
    query = select(LEASE.c.session_id).join(SESSION, SESSION.c.id == LEASE.c.session_id).where(IS_HELD)
    if directory is not None:
        query = query.where(func.coalesce(LEASE.c.directory, SESSION.c.directory) == directory)
    return list(connection.execute(query).scalars())


def held_directories(connection: Connection) -> list[str]:
    """Where servers work on sessions."""
    directory = func.coalesce(LEASE.c.directory, SESSION.c.directory)
    query = select(directory).join(SESSION, SESSION.c.id == LEASE.c.session_id).where(IS_HELD).distinct()
    return list(connection.execute(query).scalars())
