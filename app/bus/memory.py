"""The bus of one process: events go to every client that listens to their directory, or to all directories."""

import asyncio
import logging
from collections.abc import Iterable

from app.bus.base import Event, PartDelta
from app.bus.frames import EventFrame, Frame, PartFrame
from app.bus.listener import Listener
from app.bus.merging import PartMerger

log = logging.getLogger(__name__)


class MemoryBus:
    def __init__(self) -> None:
        self._listeners: dict[tuple[str | None, bool], set[Listener]] = {}
        self._wholes = self._merger(deltas=False, whole=True)
        self._gains = self._merger(deltas=True, whole=False)
        self._progress = self._merger(deltas=True, whole=True)
        self._mergers = (self._wholes, self._gains, self._progress)
        self.burst = 0
        self._in_burst = False
        self._closed = False

    def _merger(self, *, deltas: bool, whole: bool) -> PartMerger:
        def emit(frame: PartFrame) -> None:
            self._to(frame, frame.delta.directory, deltas)

        def failed(delta: PartDelta) -> None:
            for listener in self._of(delta.directory, deltas):
                listener.close()

        return PartMerger(emit, failed, whole=whole)

    def subscribe(self, directory: str | None, *, deltas: bool = False, ids: bool = False, keeps_open: bool = True) -> Listener:
        """Listen to a directory, or with None to all; `deltas`: part frames carry only what the part gained; `ids`: events carry
        their sequence; `keeps_open`: the directory counts as in use."""
        listener = Listener(self, directory, deltas=deltas, ids=ids, keeps_open=keeps_open)
        self._listeners.setdefault((directory, deltas), set()).add(listener)
        if self._closed:
            listener.close()
        return listener

    def listeners(self) -> int:
        """How many clients listen."""
        return sum(map(len, self._listeners.values()))

    def remove(self, listener: Listener) -> None:
        group = self._listeners.get((listener.directory, listener.deltas), set())
        group.discard(listener)
        if not group:
            self._listeners.pop((listener.directory, listener.deltas), None)

    def publish(self, event: Event) -> None:
        """Raises nothing: a client for which it fails is disconnected, and may resume."""
        self._begin_burst()
        if event.session_id is not None:
            self.flush(event.session_id)
        frame = EventFrame(event)
        for deltas in (False, True):
            self._to(frame, event.directory, deltas)

    def publish_delta(self, delta: PartDelta) -> None:
        """Without a listener there is nothing to render; what a later one needs is in the store. Raises nothing."""
        self._begin_burst()
        if self._heard(delta.directory, deltas=False):
            self._wholes.add(delta)
        if self._heard(delta.directory, deltas=True):
            (self._gains if delta.text else self._progress).add(delta)

    def flush(self, session_id: str) -> None:
        for merger in self._mergers:
            merger.flush(session_id)

    def directories(self) -> set[str]:
        """Those that somebody uses by listening."""
        listeners = (listener for group in self._listeners.values() for listener in group)
        return {listener.directory for listener in listeners if listener.keeps_open and listener.directory is not None}

    def close(self) -> None:
        """End every stream; one that is opened later ends at once."""
        self._closed = True
        for listener in [listener for group in self._listeners.values() for listener in group]:
            listener.close()

    def disconnect(self, directory: str) -> None:
        """End the streams of one directory, after what they still have to send."""
        for deltas in (False, True):
            for listener in list(self._listeners.get((directory, deltas), ())):
                listener.close()

    def _heard(self, directory: str, *, deltas: bool) -> bool:
        return (directory, deltas) in self._listeners or (None, deltas) in self._listeners

    def _of(self, directory: str | None, deltas: bool) -> Iterable[Listener]:
        everywhere = self._listeners.get((None, deltas), ())
        return (*everywhere, *self._listeners.get((directory, deltas), ())) if directory is not None else tuple(everywhere)

    def _to(self, frame: Frame, directory: str | None, deltas: bool) -> None:
        for listener in self._of(directory, deltas):
            try:
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
