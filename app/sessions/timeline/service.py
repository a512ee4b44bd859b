"""Reads sessions as the second API tells them."""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import orjson

from app.events.bus.base import NEVER_GIVEN, Event, EventId, StreamingParts
from app.events.bus.frames import HEARTBEAT, EventFrame, Format, Frame, PartFrame, own_written, pieces
from app.events.bus.listener import Listener
from app.record.engine import Connection
from app.record.repositories import journal_rows, message_rows, session_rows, work_rows
from app.record.repositories.session_rows import PageBeside
from app.schema.errors import BadRequest, MessageNotFound, SessionNotFound
from app.schema.message import MessageWithParts
from app.schema.part import Part
from app.schema.timeline import Delivery, SessionMessage, TimelineEvent
from app.sessions import rows
from app.sessions.store import Store
from app.sessions.timeline.entries import entries, entry, summary_request
from app.sessions.timeline.events import (
    ADMITTED,
    PREFIX,
    PROMPTED,
    Happening,
    JournalEvent,
    JournalPlace,
    digest_of,
    happenings,
    id_of_number,
    is_translated,
    mention,
    place_of,
    session_event,
    translate,
)
from app.util import clock

KEEP_SECONDS = 30.0
"""How long a history is kept for the request for its next page."""


class Admission(NamedTuple):
    """`seq`s of the events with which a prompt was admitted and became a message; `time` in epoch milliseconds."""

    admitted_seq: int
    promoted_seq: int | None
    delivery: Delivery
    time: int


@dataclass(frozen=True, slots=True)
class _WholeHistory:
    """All events of a session whose beginning the journal does not have. `before`: the happenings of the first ones, which are
    counted. `upto`: the journal's newest number then."""

    events: list[TimelineEvent]
    before: Sequence[Happening]
    upto: int


_Key = tuple[str, int, int]
"""The key of a whole history: the session, the journal's oldest number, and the journal's newest number of the session."""


class Timeline:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._translating = asyncio.Lock()
        self._kept: dict[_Key, _WholeHistory] = {}
        """The history that was read last, because clients fetch page after page."""
        self._forgetting: asyncio.TimerHandle | None = None

    async def events(self, session_id: str, after: int = 0, most: int | None = None) -> tuple[list[TimelineEvent], int]:
        """The events of a session after a number: all, or the first, more than `most` if there are more; and the journal's newest
        number that they cover. Raises NotFound; BadRequest for a number that is not known any more."""
        events, upto, made = await self._store.query(_events, session_id, after, most, self._kept)
        if made:
            self._keep(made)
        return events, upto

    def _keep(self, made: dict[_Key, _WholeHistory]) -> None:
        """Replaces the history that is kept, which would otherwise be held until its time is over."""
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._kept = made
        self._forgetting = asyncio.get_running_loop().call_later(KEEP_SECONDS, made.clear)

    async def admission(self, session_id: str, message_id: str, since: int) -> Admission:
        """How a prompt was admitted. Looks first after `since` in the journal, then in the whole history. Raises NotFound."""
        new = await self._store.query(lambda c: _translated(c, session_id, _journal(c, session_id, since)))
        found = _admission(new, message_id) or _admission((await self.events(session_id))[0], message_id)
        if found is None:
            raise MessageNotFound(session_id, message_id)
        return found

    async def translate_frames(self, frames: Iterable[EventFrame]) -> None:
        """Sets `translated` of each frame, once for all its listeners. The frames may be of several sessions."""
        async with self._translating:
            new = [frame for frame in frames if frame.translated is None]
            translatable = [frame.event for frame in new if frame.event.seq is not None and is_translated(frame.event.type)]
            translated = await self._store.query(_translated_by_seq, translatable) if translatable else {}
            for frame in new:
                frame.translated = translated.get(frame.event.seq or 0, [])

    # Messages.

    async def page(self, session_id: str, wanted: PageBeside) -> tuple[list[str], list[SessionMessage]]:
        """The ids of the page's stored messages, and their entries. Raises NotFound, InvalidCursor."""
        ids, found = await self._read_entries(session_id, partial(message_rows.messages_beside, at=wanted))
        return (ids[::-1], found[::-1]) if wanted.newest_first else (ids, found)

    async def message(self, session_id: str, message_id: str) -> SessionMessage:
        """Raises NotFound."""
        _, found = await self._read_entries(session_id, partial(message_rows.some_messages, message_ids=[message_id]))
        if not found:
            raise MessageNotFound(session_id, message_id)
        return found[0]

    async def context(self, session_id: str) -> list[SessionMessage]:
        """The messages that the model is sent: from the newest summary on. Raises NotFound."""
        return (await self._read_entries(session_id, message_rows.live_messages))[1]

    async def _read_entries(
        self, session_id: str, query: Callable[[Connection, str], message_rows.StoredMessages]
    ) -> tuple[list[str], list[SessionMessage]]:
        """The ids of stored messages, and their entries with the parts that stream. Reads anew if such a part ends meanwhile."""

        def read(connection: Connection, live: Mapping[str, Part]) -> tuple[list[str], list[SessionMessage]]:
            _require(connection, session_id)
            stored = query(connection, session_id)
            return [row.id for row in stored.messages], _entries(connection, session_id, stored, live)

        return await self._store.as_announced(session_id, lambda: self._store.query(read, self._store.live.of(session_id)))

    async def follow(self, session_id: str, after: int, listener: Listener) -> AsyncIterator[list[TimelineEvent]]:
        """The events after a number, then new ones; an empty list with each heartbeat. Ends with the listener, which receives
        this session's events alone, and when its user may not read the session any more. Raises NotFound."""
        past, upto = await self.events(session_id, after)
        listener.resume(upto, StreamingParts({}, []))
        yield past
        while (frames := await listener.take()) is not None:
            received = [frame for frame in frames if isinstance(frame, EventFrame)]
            types = {frame.event.type for frame in received}
            await self.translate_frames(received)
            events = [event for frame in received for event in frame.translated or ()]
            if events or HEARTBEAT in types:
                yield events
            if "session.deleted" in types and not await self._may_read(session_id, listener):
                return

    async def _may_read(self, session_id: str, listener: Listener) -> bool:
        """Whether the listener may read the session: one that gets a new owner is announced to the former one as deleted."""
        owners = await self._store.query(session_rows.owners, [session_id])
        audience = listener.audience
        return session_id in owners and (audience is None or audience.owns(owners[session_id]))


def _require(connection: Connection, session_id: str) -> None:
    if session_rows.stored_session(connection, session_id) is None:
        raise SessionNotFound(session_id)


def stored_prompts(connection: Connection, session_id: str, message_id: str) -> list[MessageWithParts]:
    """The prompts with this message id, stored or in the queue."""
    queued = [row.message for row in work_rows.queued_prompts(connection, session_id) if row.message_id == message_id]
    stored = rows.read_messages(session_id, message_rows.some_messages(connection, session_id, [message_id]))
    return [*stored, *(MessageWithParts.model_validate_json(message) for message in queued)]


def _admission(events: Sequence[TimelineEvent], message_id: str) -> Admission | None:
    of_message = {event.type: event for event in events if event.data.get("messageID") == message_id}
    admitted, promoted = of_message.get(ADMITTED), of_message.get(PROMPTED)
    if admitted is None:
        return None
    seq = promoted.durable.seq if promoted else None
    return Admission(admitted.durable.seq, seq, admitted.data["delivery"], admitted.data["timestamp"])


def _events(
    connection: Connection, session_id: str, after: int, most: int | None, kept: Mapping[_Key, _WholeHistory]
) -> tuple[list[TimelineEvent], int, dict[_Key, _WholeHistory]]:
    """A page of events after a number; and the whole history, if one had to be read for it that is not in `kept`."""
    _require(connection, session_id)
    oldest, newest = journal_rows.journal_span(connection)
    at = place_of(after)
    if at.journal_seq >= oldest - 1 and at.journal_seq:
        # A prompt that waited becomes a message in the commit in which it leaves the queue, and only that tells that it waited.
        journal = _journal(connection, session_id, journal_rows.commit_begin(connection, session_id, at.journal_seq) - 1)
        return _first(connection, session_id, journal, after, most or len(journal)), newest, {}
    key = (session_id, oldest, journal_rows.newest_seq_of_session(connection, session_id))
    whole = kept.get(key) or _whole_history(connection, session_id, newest)
    return _events_after(whole, at, after), whole.upto, {} if key in kept else {key: whole}


def _whole_history(connection: Connection, session_id: str, upto: int) -> _WholeHistory:
    journal = _without_copies(_journal(connection, session_id, 0))
    happened = _happened(connection, session_id, message_rows.all_messages(connection, session_id))
    journaled = {named.moment for event in journal if (named := mention(event)) is not None}
    before = [each for of_message in happened.values() for each in of_message if each.moment not in journaled]
    counted = [session_event(session_id, each, count) for count, each in enumerate(before, start=1)]
    return _WholeHistory([*counted, *translate(session_id, happened, journal)], before, upto)


def _first(
    connection: Connection, session_id: str, journal: Sequence[JournalEvent], after: int, most: int
) -> list[TimelineEvent]:
    """The first events after a number, more than `most` if there are more. Reads only the messages that these events need."""
    size = most
    while True:
        events = _translated(connection, session_id, journal[:size])
        found = [event for event in events if event.durable.seq > after]
        if len(found) > most or size >= len(journal):
            return found
        size *= 4


def _events_after(whole: _WholeHistory, at: JournalPlace, after: int) -> list[TimelineEvent]:
    """The events of the history after a number. An event that the journal no longer has is found by its digest."""
    if not at.journal_seq:
        return whole.events[bisect_right(whole.events, after, key=lambda event: event.durable.seq) :]
    found = [n for n, each in enumerate(whole.before) if digest_of(each.moment.record, each.type) == at.digest]
    if not found:
        raise BadRequest(f"The server does not remember the event {after} any more: begin again without it", ["after"], after)
    return whole.events[found[-1] + 1 :]


def _without_copies(journal: list[JournalEvent]) -> list[JournalEvent]:
    """Without the messages that a fork begins with: they are announced in the commit that creates it, but did not happen then."""
    created = next((event.time for event in journal if event.type == "session.created"), None)
    return [event for event in journal if event.time != created]


def _translated(connection: Connection, session_id: str, journal: Sequence[JournalEvent]) -> list[TimelineEvent]:
    named = {found.message_id for event in journal if (found := mention(event)) is not None}
    happened = _happened(connection, session_id, message_rows.some_messages(connection, session_id, named)) if named else {}
    return translate(session_id, happened, journal)


def _happened(connection: Connection, session_id: str, stored: message_rows.StoredMessages) -> dict[str, list[Happening]]:
    """What happened, by message; then the prompts in the queue, which are admitted and no messages yet."""
    found = {message.id: happenings(message) for message in _entries(connection, session_id, stored)}
    for row in work_rows.queued_prompts(connection, session_id):
        prompt = entry(MessageWithParts.model_validate_json(row.message)) if row.message_id else None
        if prompt is not None:
            found.setdefault(prompt.id, [each for each in happenings(prompt, "queue") if each.type == ADMITTED])
    return found


def _translated_by_seq(connection: Connection, published: Sequence[Event]) -> dict[int, list[TimelineEvent]]:
    """The second API's events, by the numbers of the journal's events that they are made of."""
    of_session: dict[str, set[int]] = {}
    for event in published:
        of_session.setdefault(event.session_id or "", set()).add(event.seq or 0)
    translated: dict[int, list[TimelineEvent]] = {}
    for session_id, seqs in of_session.items():
        begin = journal_rows.commit_begin(connection, session_id, min(seqs))  # as `_events` does
        for each in _translated(connection, session_id, _journal(connection, session_id, begin - 1, max(seqs))):
            if (seq := place_of(each.durable.seq).journal_seq) in seqs:
                translated.setdefault(seq, []).append(each)
    return translated


def _journal(connection: Connection, session_id: str, seen: int, upto: int | None = None) -> list[JournalEvent]:
    """Without events of a deleted session of that id, which an import has brought back. A session that only gets a new owner is
    deleted and created in one commit."""
    stored = journal_rows.session_events(connection, session_id, seen, upto)
    events = [JournalEvent(row.seq, row.time, row.type, orjson.loads(row.payload)["properties"]) for row in stored]
    created = {event.time for event in events if event.type == "session.created"}
    deleted = [n for n, event in enumerate(events) if event.type == "session.deleted" and event.time not in created]
    return events[max(deleted, default=-1) + 1 :]


def _entries(
    connection: Connection, session_id: str, stored: message_rows.StoredMessages, live: Mapping[str, Part] | None = None
) -> list[SessionMessage]:
    messages = rows.read_messages(session_id, stored, live or {})
    missing = {asked for message in messages if (asked := summary_request(message))} - {row.id for row in stored.messages}
    requests = rows.read_messages(session_id, message_rows.some_messages(connection, session_id, missing)) if missing else []
    return entries(messages, requests)


# The events of `session.next.*` on a stream of all events: each follows the journal's event that it is made of. Events of
# new text are made of part frames: the journal does not have them.

_STREAMED = {"text": "textID", "reasoning": "reasoningID"}
_ALREADY_SENT = frozenset(f"{PREFIX}{kind}.started" for kind in _STREAMED)
"""Sent with a text's first delta; the journal has these events, with their numbers, when the text is complete."""


async def written(timeline: Timeline, listener: Listener) -> AsyncIterator[bytes]:
    """The listener's frames, and after each its `session.next.*` events, until the listener is closed."""
    while (frames := await listener.take()) is not None:
        async for piece in with_session_events(timeline, frames, listener.form):
            yield piece


async def with_session_events(
    timeline: Timeline, frames: Sequence[Frame], form: Format, seen: EventId = EventId(NEVER_GIVEN)
) -> AsyncIterator[bytes]:
    """Only what has come behind `seen`."""
    await timeline.translate_frames(frame for frame in frames if isinstance(frame, EventFrame))
    for frame in frames:
        if frame.id == seen and isinstance(frame, EventFrame):
            yield own_written(frame.event, form)
        elif frame.id > seen and (isinstance(frame, PartFrame) or not frame.event.is_second_only):
            for piece in pieces([frame], form):
                yield piece
        yield b"".join(_beside(frame, form, seen))


def _beside(frame: Frame, form: Format, seen: EventId) -> Iterator[bytes]:
    if isinstance(frame, PartFrame):
        yield from _text_events(frame, form)
        return
    for event in frame.translated or ():
        event_id = id_of_number(event.durable.seq)
        if event.type not in _ALREADY_SENT and event_id > seen:
            content = {"type": event.type, "durable": event.durable.wire(), "data": event.data}
            yield _encoded(event_id, content, frame.directory, form)


def _text_events(frame: PartFrame, form: Format) -> Iterator[bytes]:
    delta = frame.delta
    name = _STREAMED.get(delta.part_type)
    if name is None or not frame.text:
        return
    of = {
        "timestamp": clock.now_ms(),
        "sessionID": delta.session_id,
        "assistantMessageID": delta.message_id,
        name: delta.part_id,
    }
    if delta.size == len(frame.text):
        started = {"type": f"{PREFIX}{delta.part_type}.started", "data": of}
        yield _encoded(EventId.behind(frame.id.seq), started, frame.directory, form)
    new_text = {"type": f"{PREFIX}{delta.part_type}.delta", "data": {**of, "delta": frame.text}}
    yield _encoded(EventId.behind(frame.id.seq), new_text, frame.directory, form)


def _encoded(event_id: EventId, content: Mapping[str, object], directory: str | None, form: Format) -> bytes:
    id_ = event_id.wire(form.cursors).decode()
    return b"data: %b\n\n" % orjson.dumps({"id": id_, "location": {"directory": directory}, **content})
