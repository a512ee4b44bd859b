"""What a session is shown as while something works on it: in its events, and to the readers of other servers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from app.schema.event import EventSessionIdle, EventSessionStatus, OfSession, StatusOfSession
from app.schema.session import Busy, Idle, Session, SessionStatus
from app.session.lease import LeaseStatus
from app.session.session_tx import SessionTx
from app.storage.repositories import message_rows
from app.storage.repositories.message_rows import StoredMessages

_STATUS: TypeAdapter[SessionStatus] = TypeAdapter(SessionStatus)
SHOWN_FOR_MS = 60_000
"""A session whose server is dead stays busy until another has taken it over, but not for ever."""


def busy_in(directory: str) -> LeaseStatus:
    """What other servers show of a session that is being answered."""
    return LeaseStatus(directory, Busy().wire_json().decode())


def statuses_elsewhere(leases: Sequence[Any]) -> dict[str, SessionStatus]:
    """By session, of `lease_rows.lease_statuses`."""
    return {row.session_id: _STATUS.validate_json(row.status) for row in leases if row.age < SHOWN_FOR_MS}


class EndOfRun(NamedTuple):
    """`waiting`: the prompt for which the session is not idle yet; `answer`: the newest in the session, if it was looked for."""

    waiting: str | None = None
    answer: StoredMessages | None = None


def end_of_run(tx: SessionTx, joins: bool, tried: str | None) -> EndOfRun:
    """Announces that the session is idle, unless it `joins` a prompt that has no answer and was not `tried`."""
    end = _read_end(tx, tried) if joins else EndOfRun()
    if end.waiting is None:
        tx.close_prompts()
        announce_status(tx, Idle())
    return end


def _read_end(tx: SessionTx, tried: str | None) -> EndOfRun:
    waiting = message_rows.unanswered_prompt(tx.connection, tx.session_id)
    return EndOfRun(None if waiting == tried else waiting, message_rows.newest_answer(tx.connection, tx.session_id))


def announce_status(tx: SessionTx, status: SessionStatus) -> None:
    tx.announce(EventSessionStatus(properties=StatusOfSession(session_id=tx.session_id, status=status)))
    if isinstance(status, Idle):
        tx.announce(EventSessionIdle(properties=OfSession(session_id=tx.session_id)))


def compacting(session: Session, since: int | None) -> Session:
    """A copy of the session with `time.compacting` set, or removed for None."""
    return session.model_copy(update={"time": session.time.model_copy(update={"compacting": since})})
