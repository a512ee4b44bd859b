"""The bus of one process: events go to every client that listens to their directory, or to all directories.

Publishing raises nothing and waits for nobody.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator

from app.events.bus.base import Event, EventId, PartDelta, StreamingParts
from app.events.bus.frames import EventFrame, Frame, PartMerger
from app.events.bus.listener import Listener

log = logging.getLogger(__name__)

_DISPOSED = "server.instance.disposed"


class MemoryBus:
    def __init__(self, head: Callable[[], Awaitable[int]] | None = None) -> None:
        """`head` reads the newest sequence of the journal; None without a journal."""
        self._head = head
        self.own: MemoryBus = self
        """The bus of what this server itself publishes: for listeners that act on an event, which one server shall do."""
        self.newest = 0
        """The newest sequence that listeners were given."""
        self.burst = 0
        """A number that changes when the event loop has given clients the time to read."""
        self._in_burst = False
        self._listeners: dict[tuple[str | None, bool], set[Listener]] = {}
        """By directory (None: all) and whether they are sent delta frames."""
        self.delta_listeners: Collection[object] = self._listeners
        """Empty while nobody would receive a delta."""
        self._merger = PartMerger(self._send, self._disconnect_listeners, lambda: EventId.behind(self.newest))
        self.on_journaled: set[Callable[[], None]] = set()
        """Each is called after each journaled event. None may raise."""
        self._closed = False

    async def start(self) -> None:
        """Must run before the first event is published."""
        if self._head is not None:
            self.newest = await self._head()

    async def stop(self) -> None:
        """Ends every stream."""
        self.close()

    # Publishing.

    def publish(self, event: Event) -> None:
        """A client that cannot be given it is disconnected and may resume. A directory's streams end after its disposal."""
        if self._listeners:
            if event.session_id is not None:
                self.flush(event.session_id)
            self._begin_burst()
            frame = EventFrame(event, event.id(self.newest))
            for deltas in (False, True):
                self._send(frame, deltas)
        self.newest = event.seq or self.newest
        if event.directory is not None and event.type == _DISPOSED:
            self.disconnect(event.directory)
        for wake in self.on_journaled if event.seq is not None else ():
            wake()

    def publish_delta(self, delta: PartDelta) -> None:
        """Renders nothing if nobody listens: a later listener reads the part from the store."""
        for deltas in (False, True):
            if (delta.directory, deltas) in self._listeners or (None, deltas) in self._listeners:
                self._begin_burst()
                self._merger.add(delta, deltas=deltas)

    def flush(self, session_id: str) -> None:
        self._merger.flush(session_id)

    def _send(self, frame: Frame, deltas: bool) -> None:
        for listener in self._listeners_of(frame.directory, deltas):
            try:
                if listener.receives(frame):
                    listener.push(frame)
            except Exception:
                log.exception("an event could not be put before a client; it is disconnected")
                listener.close()

    def _begin_burst(self) -> None:
        if not self._in_burst:
            self._in_burst = True
            asyncio.get_running_loop().call_soon(self._end_burst)

    def _end_burst(self) -> None:
        self._in_burst = False
        self.burst += 1

    # Listeners.

    def add(self, listener: Listener) -> None:
        self._listeners.setdefault((listener.directory, listener.deltas), set()).add(listener)
        if self._closed:
            listener.close()

    def remove(self, listener: Listener) -> None:
        group = self._listeners.get((listener.directory, listener.deltas), set())
        group.discard(listener)
        if not group:
            self._listeners.pop((listener.directory, listener.deltas), None)

    async def streaming(self, directory: str | None, upto: int) -> StreamingParts:
        """The parts of a directory (None: of all) that stream on other servers, and have not ended by the event `upto`."""
        return StreamingParts({}, [])

    def listeners(self) -> int:
        """How many clients of this server listen."""
        return sum(map(len, self._listeners.values()))

    def directories(self) -> set[str]:
        """The directories that clients keep in use by listening."""
        return {each.directory for each in self._all() if each.keeps_open and each.directory is not None}

    def close(self) -> None:
        """Ends every stream. A stream that is opened later ends at once."""
        self._closed = True
        self.disconnect_all()

    def disconnect_all(self) -> None:
        """Ends every stream. Clients may resume, and read anew what cannot be replayed."""
        for listener in tuple(self._all()):
            listener.close()

    def disconnect(self, directory: str) -> None:
        """Ends the streams of one directory after the frames that wait in them."""
        for deltas in (False, True):
            for listener in tuple(self._listeners.get((directory, deltas), ())):
                listener.close()

    def _disconnect_listeners(self, delta: PartDelta, deltas: bool) -> None:
        for listener in self._listeners_of(delta.directory, deltas):
            listener.close()

    def _all(self) -> Iterator[Listener]:
        return (listener for group in self._listeners.values() for listener in group)

    def _listeners_of(self, directory: str | None, deltas: bool) -> tuple[Listener, ...]:
        everywhere = self._listeners.get((None, deltas), ())
        return (*everywhere, *self._listeners.get((directory, deltas), ())) if directory is not None else tuple(everywhere)
