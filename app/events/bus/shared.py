"""The bus of several servers with one database: every server publishes the events of all, with the same ids in the same order.

Events come from the journal's order (`OrderedEvents`), deltas from the server that runs the session (`RedisLink`,
`RemoteParts`). Without Redis the journal is read more often, and the deltas of other servers do not come.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any

import orjson

from app.events.bus.base import Event, PartDelta, StreamingParts
from app.events.bus.frames import Frame, PartFrame
from app.events.bus.listener import Listener
from app.events.bus.memory import MemoryBus
from app.events.bus.redis_link import RedisLink
from app.schema.event import EventMessagePartUpdated
from app.util.tasks import FailureLog, TaskSet

# The parts that stream on other servers, put together here from their deltas.

MAX_PARTS = 10_000


@dataclass(slots=True)
class RemotePart:
    """`size`: the number of known characters of its text."""

    first: PartDelta
    body: dict[str, Any]
    size: int
    pieces: list[str] = field(default_factory=list)

    def append(self, text: str) -> None:
        self.pieces.append(text)
        self.size += len(text)

    def first_characters(self, size: int) -> bytes:
        """The JSON of the part as it was when its text had this length."""
        if self.pieces:
            self.body["text"] = "".join((self.body["text"], *self.pieces))
            self.pieces.clear()
        return orjson.dumps({**self.body, "text": self.body["text"][:size]})

    def event(self) -> Event:
        part = self.first
        updated = EventMessagePartUpdated.around_part(part.session_id, self.first_characters(self.size))
        return Event.of(updated, part.directory, part.session_id, journaled=False).stored(part.owner, None)


class RemoteParts:
    def __init__(self) -> None:
        self._parts: OrderedDict[str, RemotePart] = OrderedDict()
        self._generations: OrderedDict[str, int] = OrderedDict()
        self._ends: OrderedDict[str, int] = OrderedDict()
        """By the id of a part, message or session: the sequence of the newest event that shows all of it, or its end."""

    def apply(self, delta: PartDelta, full_part: str | None, after: int) -> PartDelta | Event | None:
        """What to publish here for a delta of another server: a delta; a full event if earlier text was missed; None if it comes
        from a server that has lost the session, comes too late, or something is missing still.

        `full_part`: the part's JSON, for a part that others may not know yet, or that changed otherwise than by text. `after`:
        the newest sequence that the other server had announced by then."""
        if delta.generation < self._generations.get(delta.session_id, 0) or self.is_late(delta, after):
            return None
        _remember(self._generations, delta.session_id, delta.generation)
        if not delta.text:
            return delta if full_part else None
        part = self._parts.get(delta.part_id)
        if part is not None and part.size >= delta.size:
            return None  # Redis may be given the same delta twice
        if part is not None and part.size + len(delta.text) == delta.size:
            part.append(delta.text)
        elif full_part:
            body = orjson.loads(full_part)
            part = RemotePart(delta, body, len(body["text"]))
            _remember(self._parts, delta.part_id, part)
            if delta.size != len(delta.text):
                return part.event()
        else:
            return None
        return delta._replace(render=partial(part.first_characters, delta.size))

    def is_late(self, delta: PartDelta, after: int) -> bool:
        """Whether clients have newer text from the journal: the delta was on its way while Redis did not answer, or waited here
        until the writer heard of its commit."""
        return any(after < self._ends.get(key, 0) for key in (delta.part_id, delta.message_id, delta.session_id))

    def ended(self, id: str, seq: int) -> None:
        """The last event of a part has come, or a part, message or session was removed."""
        _remember(self._ends, id, seq)
        gone = [key for key, part in self._parts.items() if id in (key, part.first.message_id, part.first.session_id)]
        for key in gone:
            del self._parts[key]

    def streaming(self, directory: str | None) -> StreamingParts:
        parts = {key: part for key, part in self._parts.items() if directory in (None, part.first.directory)}
        return StreamingParts({key: part.size for key, part in parts.items()}, [part.event() for part in parts.values()])


def _remember(known: OrderedDict[str, Any], key: str, value: Any) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > MAX_PARTS:
        known.popitem(last=False)


# The journal's events in order, each once and none left out, wherever this server hears of them first. Sequences have no gaps and
# are committed in order. An event is delivered when all earlier ones are. Missing events were committed by another server, and
# come from it or, a moment later, from the journal.

log = logging.getLogger(__name__)

GAP_SECONDS = 0.01
"""How long the missing events may take to come from the server that committed them, before the journal is read."""
MAX_WAITING = 1_000
"""Events that may wait for a gap to close. Further ones are read from the journal again."""


class OrderedEvents:
    def __init__(
        self,
        deliver: Callable[[Event], None],
        read_after: Callable[[int], Awaitable[Sequence[Event]]],
        lost: Callable[[], None],
    ) -> None:
        """`read_after` returns events of the journal after a sequence, none at its head. `lost` is called when the journal no
        longer has the missing events."""
        self._deliver = deliver
        self._read_after = read_after
        self._lost = lost
        self._waiting: dict[int, Event] = {}
        self._gap = asyncio.Event()
        self.cursor = 0
        self.offered = 0
        """The newest sequence that this server has heard of."""
        self.poll_seconds = 0.25
        """How often the journal is read while nothing is missing: its newest event may be one that no server announced."""

    def begin(self, head: int) -> None:
        """From now on events after `head` are delivered."""
        self.cursor = head
        self._advance()

    def offer(self, events: Iterable[Event]) -> None:
        for event in events:
            assert event.seq is not None
            self.offered = max(self.offered, event.seq)
            if event.seq > self.cursor and len(self._waiting) < MAX_WAITING:
                self._waiting[event.seq] = event
        self._advance()

    def hint(self, seq: int) -> None:
        """The journal has an event of this sequence."""
        self.offered = max(self.offered, seq)
        self._advance()

    async def follow(self) -> None:
        """Until cancelled: reads missing events, and those that no server announces."""
        failures = FailureLog(log, "reading the event journal")
        while True:
            try:
                async with asyncio.timeout(self.poll_seconds):
                    await self._gap.wait()
                    await asyncio.sleep(GAP_SECONDS)
            except TimeoutError:
                pass
            else:
                if self.cursor >= self.offered:
                    continue
            try:
                await self.read()
                failures.worked()
            except Exception as error:  # noqa: BLE001  the database may answer the next time
                failures.failed(error)
                await asyncio.sleep(self.poll_seconds)

    async def read(self) -> None:
        """Delivers all that the journal has."""
        while events := await self._read_after(self.cursor):
            first = events[0].seq or 0
            if first > self.cursor + 1 and first not in self._waiting and self.cursor + 1 not in self._waiting:
                self._lost()
            for event in events:
                if event.seq is not None and event.seq > self.cursor:
                    self._pass_on(event)
            self._advance()

    def _advance(self) -> None:
        while (event := self._waiting.pop(self.cursor + 1, None)) is not None:
            self._pass_on(event)
        if self.cursor < self.offered:
            self._gap.set()
        else:
            self._gap.clear()

    def _pass_on(self, event: Event) -> None:
        assert event.seq is not None
        self.cursor = event.seq
        self._waiting.pop(event.seq, None)
        self._deliver(event)


POLL_SECONDS, POLL_SECONDS_WITH_REDIS = 0.25, 1.0
MAX_SENT_BYTES = 64 * 1024
"""Bytes. A larger event is only hinted at: the others read it from the journal."""
FULL_PART_SECONDS = 2.0
"""How often a streaming part is sent in full, for servers that do not know it yet or missed something."""

_EVENT, _HINT, _DELTA = range(3)


class SharedBus(MemoryBus):
    def __init__(
        self,
        redis_url: str | None,
        identity: Callable[[], Awaitable[str]],
        head: Callable[[], Awaitable[int]],
        read_after: Callable[[int], Awaitable[Sequence[Event]]],
    ) -> None:
        """`identity`: the database's, so that the servers of another one may use the same Redis. `head` and `read_after` read the
        journal."""
        super().__init__(head)
        self.delta_listeners = ("other servers",)
        self.own = MemoryBus()
        self._redis_url = redis_url
        self._identity = identity
        self._remote = RemoteParts()
        self._ordered = OrderedEvents(self._deliver, read_after, self.disconnect_all)
        self._unnumbered: deque[tuple[int, Callable[[], None]]] = deque()
        """Publications without a sequence, each with the sequence that comes before it."""
        self._sent_in_full: dict[str, float] = {}
        self._link: RedisLink | None = None
        self._tasks = TaskSet()

    async def start(self) -> None:
        await super().start()
        self._ordered.begin(self.newest)
        if self._redis_url is not None:
            self._link = RedisLink(self._redis_url, f"opensession:{await self._identity()}", self._receive)
            self._link.start()
            self._tasks.start(self._forward(self._link), "announce to other servers")
        self._tasks.start(self._ordered.follow(), "follow the event journal")

    async def stop(self) -> None:
        await self._tasks.cancel()
        if self._link is not None:
            await self._link.stop()
        await super().stop()

    def cursor(self) -> int | None:
        """The sequence of the newest event that this server's clients were given; None before the start."""
        return self._ordered.cursor if self._tasks else None

    async def streaming(self, directory: str | None, upto: int) -> StreamingParts:
        if self._ordered.cursor < upto:
            await self._ordered.read()
        return self._remote.streaming(directory)

    # What this server publishes.

    def publish(self, event: Event) -> None:
        self.own.publish(event)
        if event.seq is None:
            self._in_order(partial(super().publish, event))
        else:
            self._ordered.offer([event])

    def publish_delta(self, delta: PartDelta) -> None:
        self.own.publish_delta(delta)
        self._in_order(partial(self._publish_unless_late, delta, self.own.newest))

    def _publish_unless_late(self, delta: PartDelta, after: int) -> None:
        if not self._remote.is_late(delta, after):
            super().publish_delta(delta)

    def _in_order(self, publish: Callable[[], None]) -> None:
        """A publication without a sequence goes after all events that this server knows to come before it."""
        if self._ordered.offered > self._ordered.cursor or self._unnumbered:
            self._unnumbered.append((self._ordered.offered, publish))
        else:
            publish()

    def _deliver(self, event: Event) -> None:
        if (ended := _ended(event)) and event.seq is not None:
            self._remote.ended(ended, event.seq)
        super().publish(event)
        while self._unnumbered and self._unnumbered[0][0] <= self._ordered.cursor:
            self._unnumbered.popleft()[1]()

    # To other servers.

    async def _forward(self, link: RedisLink) -> None:
        """Sends what this server itself publishes, with deltas merged as for a client."""
        while True:
            self._ordered.poll_seconds = POLL_SECONDS_WITH_REDIS if link.is_connected else POLL_SECONDS
            listener = Listener(self.own, None, deltas=True, keeps_open=False, user=None)
            while (frames := await listener.take()) is not None:
                self._ordered.poll_seconds = POLL_SECONDS_WITH_REDIS if link.is_connected else POLL_SECONDS
                for frame in frames:
                    self._send_on(link, frame)

    def _send_on(self, link: RedisLink, frame: Frame) -> None:
        if isinstance(frame, PartFrame):
            full_part = frame.part or self._full_part_if_due(frame.delta)
            fields = {**frame.delta._asdict(), "text": frame.text, "render": None}
            link.send([_DELTA, fields, full_part.decode() if full_part else None, frame.id.seq])
        elif frame.event.seq is not None:
            event = frame.event
            small = len(event.payload) <= MAX_SENT_BYTES
            full_event = [_EVENT, event.seq, event.type, event.session_id, event.directory, event.payload.decode(), event.owner]
            link.send(full_event if small else [_HINT, event.seq])

    def _full_part_if_due(self, delta: PartDelta) -> bytes | None:
        """The part in full, if it has to be sent so now, and can be rendered."""
        try:
            return delta.render() if self._is_full_part_due(delta.part_id) else None
        except Exception:
            log.exception("part %s could not be shown to other servers", delta.part_id)
            return None

    def _is_full_part_due(self, part_id: str) -> bool:
        now = monotonic()
        if len(self._sent_in_full) > 1000:
            self._sent_in_full = {key: at for key, at in self._sent_in_full.items() if now - at < FULL_PART_SECONDS}
        if now - self._sent_in_full.get(part_id, -FULL_PART_SECONDS) < FULL_PART_SECONDS:
            return False
        self._sent_in_full[part_id] = now
        return True

    # From other servers.

    def _receive(self, item: list[Any]) -> None:
        kind, *rest = item
        if kind == _EVENT:
            seq, type_, session_id, directory, payload, owner = rest
            event = Event(type_, payload.encode(), session_id=session_id, directory=directory, seq=seq, owner=owner)
            self._ordered.offer([event])
        elif kind == _HINT:
            self._ordered.hint(*rest)
        elif kind == _DELTA:
            fields, full_part, after = rest
            delta = PartDelta(**{**fields, "render": partial(str.encode, full_part or "{}")})
            self._in_order(partial(self._apply_delta, delta, full_part, after))

    def _apply_delta(self, delta: PartDelta, full_part: str | None, after: int) -> None:
        announced = self._remote.apply(delta, full_part, after)
        if isinstance(announced, Event):
            super().publish(announced)
        elif announced is not None:
            super().publish_delta(announced)


def _ended(event: Event) -> str | None:
    """The id of what has ended, for a part's last event, or a removal."""
    match event.type:
        case "session.deleted":
            return event.session_id
        case "message.part.updated":
            ended: str = orjson.loads(event.properties)["part"]["id"]
        case "message.part.removed":
            ended = orjson.loads(event.properties)["partID"]
        case "message.removed":
            ended = orjson.loads(event.properties)["messageID"]
        case _:
            return None
    return ended
