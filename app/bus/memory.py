"""The bus of one process: events go to every client that listens to their directory, or to all directories."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Unpack

from app.bus.base import Event, ListenerOptions, PartDelta, StreamingParts
from app.bus.event_id import EventId
from app.bus.frames import EventFrame, Frame
from app.bus.listener import Listener
from app.bus.merging import PartMerger

log = logging.getLogger(__name__)


_DISPOSED = "server.instance.disposed"


class MemoryBus:
    def __init__(self, head: Callable[[], Awaitable[int]] | None = None) -> None:
        """`head` reads the newest sequence of the journal, without which it has none."""
        self._head = head
        self.newest = 0
        """The newest sequence that listeners were given."""
        self._listeners: dict[tuple[str | None, bool], set[Listener]] = {}
        """By directory (None: all) and whether they are sent deltas alone."""
        self._merger = PartMerger(self._send, self._disconnect_listeners, lambda: EventId.behind(self.newest))
        self.burst = 0
        self._in_burst = False
        self._closed = False
        self._wakes: list[Callable[[], None]] = []

    def subscribe(self, directory: str | None, **options: Unpack[ListenerOptions]) -> Listener:
        listener = Listener(self, directory, **options)
        self._listeners.setdefault((directory, listener.deltas), set()).add(listener)
        if self._closed:
            listener.close()
        return listener

    def subscribe_own(self, directory: str) -> Listener:
        return self.subscribe(directory, keeps_open=False, user=None)

    def notify(self, wake: Callable[[], None]) -> None:
        self._wakes.append(wake)

    async def start(self) -> None:
        if self._head is not None:
            self.newest = await self._head()

    async def stop(self) -> None:
        self.close()

    def streaming(self, directory: str | None) -> StreamingParts:
        return StreamingParts({}, [])

    def listeners(self) -> int:
        return sum(map(len, self._listeners.values()))

    def remove(self, listener: Listener) -> None:
        group = self._listeners.get((listener.directory, listener.deltas), set())
        group.discard(listener)
        if not group:
            self._listeners.pop((listener.directory, listener.deltas), None)

    def publish(self, event: Event) -> None:
        """A client for which it fails is disconnected, and may resume. The streams of a directory end behind its disposal."""
        if event.session_id is not None:
            self.flush(event.session_id)
        if self._listeners:
            self._begin_burst()
            frame = EventFrame(event, event.id(self.newest))
            for deltas in (False, True):
                self._send(frame, deltas)
        self.newest = event.seq or self.newest
        if event.directory is not None and event.type == _DISPOSED:
            self.disconnect(event.directory)
        for wake in self._wakes if event.seq is not None else ():
            wake()

    def publish_delta(self, delta: PartDelta) -> None:
        """Without a listener there is nothing to render; what a later one needs is in the store."""
        for deltas in (False, True):
            if (delta.directory, deltas) in self._listeners or (None, deltas) in self._listeners:
                self._begin_burst()
                self._merger.add(delta, deltas=deltas)

    def flush(self, session_id: str) -> None:
        self._merger.flush(session_id)

    def directories(self) -> set[str]:
        listeners = (listener for group in self._listeners.values() for listener in group)
        return {listener.directory for listener in listeners if listener.keeps_open and listener.directory is not None}

    def close(self) -> None:
        self._closed = True
        self.disconnect_all()

    def disconnect_all(self) -> None:
        """Clients may resume, and read anew what cannot be replayed."""
        for listener in [listener for group in self._listeners.values() for listener in group]:
            listener.close()

    def disconnect(self, directory: str) -> None:
        for deltas in (False, True):
            for listener in tuple(self._listeners.get((directory, deltas), ())):
                listener.close()

    def _disconnect_listeners(self, delta: PartDelta, deltas: bool) -> None:
        for listener in self._of(delta.directory, deltas):
            listener.close()

    def _of(self, directory: str | None, deltas: bool) -> tuple[Listener, ...]:
        everywhere = self._listeners.get((None, deltas), ())
        return (*everywhere, *self._listeners.get((directory, deltas), ())) if directory is not None else tuple(everywhere)

    def _send(self, frame: Frame, deltas: bool) -> None:
        for listener in self._of(frame.directory, deltas):
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
