"""Queries of the journal, the stored events."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, bindparam, delete, func, literal_column, or_, select

from app.events.bus.base import Event
from app.record.tables import COUNTER, EVENT, WEBHOOK

PAGE_BYTES = 1_000_000
_ROW_BY_ROW = {"stream_results": True, "max_row_buffer": 4}
"""Without this, PostgreSQL's driver would fetch the whole result."""


def events_after(
    connection: Connection, seq: int, directory: str | None, max_bytes: int, owner: str | None = None
) -> tuple[list[Row[Any]], bool]:
    """The journal's rows after a cursor, of one directory or of all, up to `max_bytes` in total but at least one; and whether
    these are all. `owner`: only rows of this user's sessions and of no session; None for all. Rows are streamed, so few are read
    beyond those returned."""
    query: Select[Any] = select(EVENT).where(EVENT.c.seq > seq).order_by(EVENT.c.seq)
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


def event_of(row: Any) -> Event:
    """The event in a row of the journal."""
    return Event(row.type, row.payload.encode(), session_id=row.session_id, directory=row.directory, seq=row.seq, owner=row.owner)


_OF_SESSION = (EVENT.c.session_id == bindparam("session"), EVENT.c.seq > bindparam("after"), EVENT.c.seq <= bindparam("upto"))
_SESSION_EVENTS = select(EVENT.c.seq, EVENT.c.time, EVENT.c.type, EVENT.c.payload).where(*_OF_SESSION).order_by(EVENT.c.seq)


def session_events(connection: Connection, session_id: str, seq: int, upto: int | None = None) -> Sequence[Row[Any]]:
    """The journal's rows of a session after the sequence `seq`, up to `upto`."""
    wanted = {"session": session_id, "after": seq, "upto": 2**63 - 1 if upto is None else upto}
    return connection.execute(_SESSION_EVENTS, wanted).all()


def commit_begin(connection: Connection, session_id: str, seq: int) -> int:
    """The sequence of the session's first event that was announced in the same commit as an event, or at the same time."""
    of_session = EVENT.c.session_id == session_id
    time = select(EVENT.c.time).where(of_session, EVENT.c.seq == seq).scalar_subquery()
    first = select(func.min(EVENT.c.seq)).where(of_session, EVENT.c.seq <= seq, EVENT.c.time == time)
    return connection.execute(first).scalar_one() or seq


def newest_seq_of_session(connection: Connection, session_id: str) -> int:
    """The sequence of the session's newest event; 0 if the journal has none."""
    return connection.execute(select(func.max(EVENT.c.seq)).where(EVENT.c.session_id == session_id)).scalar_one() or 0


def database_identity(connection: Connection) -> str:
    """A random number that a new database or a migration gets: servers that share one Redis tell their databases apart by it."""
    return str(connection.execute(select(COUNTER.c.value).where(COUNTER.c.name == "identity")).scalar_one())


def newest_seq(connection: Connection) -> int:
    """The newest assigned sequence."""
    return int(connection.execute(select(COUNTER.c.value).where(COUNTER.c.name == "journal")).scalar_one())


def journal_span(connection: Connection) -> tuple[int, int]:
    """(oldest stored, newest assigned) sequence. The oldest is newest + 1 if the journal is empty."""
    newest = newest_seq(connection)
    oldest = connection.execute(select(func.min(EVENT.c.seq))).scalar_one_or_none()
    return (oldest if oldest is not None else newest + 1, newest)


@dataclass(frozen=True, slots=True)
class JournalPage:
    """Events of the journal after a cursor, as rows. `upto` is the newest sequence that they cover. `is_last`: the journal has no
    more. `is_gap`: events after the cursor are no longer stored, or the journal has never given this cursor; the page is empty
    then. `newest`: the newest sequence that was assigned."""

    rows: Sequence[Row[Any]]
    upto: int
    newest: int
    is_last: bool = False
    is_gap: bool = False


def journal_page(connection: Connection, cursor: int, directory: str | None, owner: str | None, max_bytes: int) -> JournalPage:
    """`owner`: only events of this user's sessions and of no session; None for all."""
    oldest, newest = journal_span(connection)
    if cursor < oldest - 1:
        return JournalPage([], oldest - 1, newest, is_gap=True)
    if cursor > newest:
        return JournalPage([], newest, newest, is_gap=True)
    rows, is_last = events_after(connection, cursor, directory, max_bytes, owner)
    return JournalPage(rows, newest if is_last else rows[-1].seq, newest, is_last)


_OFFERED_TO_WEBHOOKS = select(func.min(WEBHOOK.c.cursor)).where(WEBHOOK.c.enabled)
_BYTES_FROM_EVENT_ON = select(
    EVENT.c.seq, func.sum(EVENT.c.bytes).over(order_by=(EVENT.c.seq + literal_column("0")).desc()).label("kept")
).subquery()
"""By event, the bytes of it and of all newer ones. Not by time: the clock may be put back. `+ 0` keeps SQLite from
scanning the table for the order: the index covers the query."""
_TOO_MANY_BYTES = select(func.max(_BYTES_FROM_EVENT_ON.c.seq)).where(_BYTES_FROM_EVENT_ON.c.kept > bindparam("keep"))
_TOO_OLD = select(func.max(EVENT.c.seq)).where(EVENT.c.time < bindparam("limit"))


def newest_to_trim(connection: Connection, keep_events: int, keep_bytes: int, older_than: int) -> int:
    """The newest sequence to delete; 0 for none. An event is deleted if its time is before `older_than`, if it and the newer ones
    have more than `keep_bytes`, or if it is not among the newest `keep_events` and every enabled webhook has been offered it; and
    each event before it."""
    newest = connection.execute(select(func.max(EVENT.c.seq))).scalar_one_or_none() or 0
    too_many = connection.execute(_TOO_MANY_BYTES, {"keep": keep_bytes}).scalar_one_or_none() or 0
    too_old = connection.execute(_TOO_OLD, {"limit": older_than}).scalar_one_or_none() or 0
    offered = connection.execute(_OFFERED_TO_WEBHOOKS).scalar_one_or_none()
    superfluous = newest - keep_events if offered is None else min(newest - keep_events, offered)
    return max(too_many, too_old, superfluous)


def trim_journal(connection: Connection, upto: int) -> None:
    connection.execute(delete(EVENT).where(EVENT.c.seq <= upto))
