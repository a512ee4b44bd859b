"""What waits: requests for an answer of a user, prompts for a turn of their own."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, func, select

from app.storage.repositories.lease_rows import HELD_SESSIONS, in_or_not_leased
from app.storage.tables import PENDING_REQUEST, QUEUED_PROMPT, SESSION

# Requests.

_ANY = select(PENDING_REQUEST).order_by(PENDING_REQUEST.c.seq)
_WAITING = _ANY.where(PENDING_REQUEST.c.answer.is_(None))


def pending_requests(connection: Connection, kind: str, directory: str, owner: str | None = None) -> Sequence[Row[Any]]:
    """`owner`: only those of the sessions of a user."""
    query = _WAITING.where(PENDING_REQUEST.c.kind == kind, PENDING_REQUEST.c.directory == directory)
    if owner is not None:
        query = query.where(PENDING_REQUEST.c.session_id.in_(select(SESSION.c.id).where(SESSION.c.owner == owner)))
    return connection.execute(query).all()


def session_requests(connection: Connection, kind: str, session_id: str) -> Sequence[Row[Any]]:
    query = _WAITING.where(PENDING_REQUEST.c.kind == kind, PENDING_REQUEST.c.session_id == session_id)
    return connection.execute(query).all()


_ONE_REQUEST = _ANY.where(PENDING_REQUEST.c.id == bindparam("id"))


def find_request(connection: Connection, request_id: str) -> Row[Any] | None:
    """Whether it waits or is answered."""
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
    """In their order."""
    return connection.execute(_QUEUED_PROMPTS, {"session": session_id}).all()


_QUEUED_PROMPT = select(QUEUED_PROMPT.c.seq).where(_OF_SESSION, QUEUED_PROMPT.c.id == bindparam("id")).with_for_update()


def is_queued(connection: Connection, session_id: str, queued_id: str) -> bool:
    """Until the transaction ends, no other one takes the prompt from the queue."""
    return connection.execute(_QUEUED_PROMPT, {"session": session_id, "id": queued_id}).one_or_none() is not None


_WAITING_QUEUES = (
    select(QUEUED_PROMPT.c.session_id, func.min(QUEUED_PROMPT.c.seq).label("first"))
    .where(QUEUED_PROMPT.c.session_id.not_in(HELD_SESSIONS))
    .group_by(QUEUED_PROMPT.c.session_id)
)


def waiting_queues(connection: Connection) -> list[tuple[str, int]]:
    """(session, `seq` of its first queued prompt) of sessions that no server works on."""
    return [(row.session_id, row.first) for row in connection.execute(_WAITING_QUEUES)]
