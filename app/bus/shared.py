"""The bus of several servers with one database: every server publishes the events of all, with the same ids in the same order.

Events come from the journal's order (`ordered_events`), deltas from the server that runs the session (`redis_link`,
`remote_parts`). Without Redis the journal is read more often, and the deltas of other servers do not come.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any

import orjson

from app.bus.base import Event, PartDelta, StreamingParts
from app.bus.frames import Frame, PartFrame
from app.bus.listener import Listener
from app.bus.memory import MemoryBus
from app.bus.ordered_events import OrderedEvents
from app.bus.redis_link import RedisLink
from app.bus.remote_parts import RemoteParts
from app.util.tasks import TaskSet

POLL_SECONDS, POLL_SECONDS_WITH_REDIS = 0.25, 1.0
LARGEST_SENT = 64 * 1024
"""Bytes. A larger event is only hinted at: the others read it from the journal."""
WHOLE_PART_SECONDS = 2.0
"""How often a streaming part is sent whole, for servers that do not know it yet or missed something."""

_EVENT, _HINT, _GROWTH = range(3)


class SharedBus(MemoryBus):
    def __init__(
        self,
        redis_url: str | None,
        identity: Callable[[], Awaitable[str]],
        head: Callable[[], Awaitable[int]],
        read_after: Callable[[int], Awaitable[Sequence[Event]]],
    ) -> None:
        """`identity` is the database's, so that the servers of another one may use the same Redis. `head` and `read_after` read
        the journal."""
        super().__init__(head)
        self.heard = ("other servers",)
        self.own = MemoryBus()
        self._redis_url = redis_url
        self._identity = identity
        self._remote = RemoteParts()
        self._ordered = OrderedEvents(self._deliver, read_after, self.disconnect_all)
        self._unnumbered: deque[tuple[int, Callable[[], None]]] = deque()
        """What publishes something without a sequence, and the sequence that comes before it."""
        self._sent_whole: dict[str, float] = {}
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

    def streaming(self, directory: str | None) -> StreamingParts:
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
        self._in_order(partial(super().publish_delta, delta))

    def _in_order(self, publish: Callable[[], None]) -> None:
        """What has no sequence goes behind all events that this server knows to come before it."""
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

    # What goes to other servers.

    async def _forward(self, link: RedisLink) -> None:
        """What this server itself publishes, deltas merged as for a client."""
        while True:
            self._ordered.poll_seconds = POLL_SECONDS_WITH_REDIS if link.is_connected else POLL_SECONDS
            listener = Listener(self.own, None, deltas=True, keeps_open=False, user=None)
            while (frames := await listener.take()) is not None:
                self._ordered.poll_seconds = POLL_SECONDS_WITH_REDIS if link.is_connected else POLL_SECONDS
                for frame in frames:
                    self._send_on(link, frame)

    def _send_on(self, link: RedisLink, frame: Frame) -> None:
        if isinstance(frame, PartFrame):
            whole = frame.part or (frame.delta.render() if self._is_whole_due(frame.delta.part_id) else None)
            fields = {**frame.delta._asdict(), "text": frame.text, "render": None}
            link.send([_GROWTH, fields, whole.decode() if whole else None, frame.id.seq])
        elif frame.event.seq is not None:
            event = frame.event
            small = len(event.payload) <= LARGEST_SENT
            whole_event = [_EVENT, event.seq, event.type, event.session_id, event.directory, event.payload.decode(), event.owner]
            link.send(whole_event if small else [_HINT, event.seq])

    def _is_whole_due(self, part_id: str) -> bool:
        """Whether the part has to be sent whole."""
        now = monotonic()
        if len(self._sent_whole) > 1000:
            self._sent_whole = {key: at for key, at in self._sent_whole.items() if now - at < WHOLE_PART_SECONDS}
        if now - self._sent_whole.get(part_id, -WHOLE_PART_SECONDS) < WHOLE_PART_SECONDS:
            return False
        self._sent_whole[part_id] = now
        return True

    # What comes from other servers.

    def _receive(self, item: list[Any]) -> None:
        kind, *rest = item
        if kind == _EVENT:
            seq, type_, session_id, directory, payload, owner = rest
            event = Event(type_, payload.encode(), session_id=session_id, directory=directory, seq=seq, owner=owner)
            self._ordered.offer([event])
        elif kind == _HINT:
            self._ordered.hint(*rest)
        elif kind == _GROWTH:
            fields, whole, after = rest
            delta = PartDelta(**{**fields, "render": partial(str.encode, whole or "{}")})
            self._in_order(partial(self._grow, delta, whole, after))

    def _grow(self, delta: PartDelta, whole: str | None, after: int) -> None:
        announced = self._remote.apply(delta, whole, after)
        if isinstance(announced, Event):
            super().publish(announced)
        elif announced is not None:
            super().publish_delta(announced)


def _ended(event: Event) -> str | None:
    """Of a part's last event, or of a removal: the id of what has ended."""
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
