"""What waits: requests for an answer of a user, prompts for a turn of their own."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select

from app.storage.prepared import PreparedStatement
from app.storage.repositories.lease_rows import HELD_SESSIONS, in_or_not_leased
from app.storage.tables import PENDING_REQUEST, QUEUED_PROMPT, SESSION

_QUEUED_PROMPTS = PreparedStatement(
    select(*QUEUED_PROMPT.columns).where(QUEUED_PROMPT.c.session_id == bindparam("of_session")).order_by(QUEUED_PROMPT.c.seq)
)


def queued_prompts(connection: Connection, session_id: str) -> Sequence[Row[Any]]:
    """In their order."""
    return connection.execute(_QUEUED_PROMPTS, {"of_session": session_id}).all()


def is_queued(connection: Connection, session_id: str, queued_id: str) -> bool:
    """Until the transaction ends, no other one takes the prompt from the queue."""
    one = (QUEUED_PROMPT.c.session_id == session_id, QUEUED_PROMPT.c.id == queued_id)
    query = select(QUEUED_PROMPT.c.seq).where(*one).with_for_update()
    return connection.execute(query).scalar_one_or_none() is not None


_WAITING_QUEUES = (
    select(QUEUED_PROMPT.c.session_id, func.min(QUEUED_PROMPT.c.seq).label("first"))
    .where(QUEUED_PROMPT.c.session_id.not_in(HELD_SESSIONS))
    .group_by(QUEUED_PROMPT.c.session_id)
)


def waiting_queues(connection: Connection) -> list[tuple[str, int]]:
    """(session, `seq` of its first queued prompt) of sessions that no server works on."""
    return [(row.session_id, row.first) for row in connection.execute(_WAITING_QUEUES).all()]


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
        PENDING_REQUEST.c.kind == kind, in_or_not_leased(PENDING_REQUEST.c.session_id, sessions)
    )
    return connection.execute(query.order_by(PENDING_REQUEST.c.seq)).all()
