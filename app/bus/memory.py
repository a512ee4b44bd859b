"""The bus of one process: events go to every client that listens to their directory, or to all directories."""

import asyncio
from collections import deque
from dataclasses import replace

from app.bus.base import ENDED, Event, PartDelta
from app.bus.frames import EventFrame, Format, Frame, PartFrame
from app.bus.merging import PartMerger

MERGE_ABOVE = 1_000_000
DISCONNECT_ABOVE = 8_000_000
"""Bytes that wait for one client: above the first its part frames are merged, above the second it is cut off and may resume; a
single event may be larger."""


class Listener:
    """One client's bounded queue of frames."""

    def __init__(self, bus: "MemoryBus", directory: str | None, deltas: bool, ids: bool, keeps_open: bool) -> None:
        self._bus = bus
        self.directory = directory
        self.deltas = deltas
        self.form = Format(global_=directory is None, ids=ids)
        self.keeps_open = keeps_open
        self._frames: deque[Frame] = deque()
        self._size = 0
        self._merge_above = MERGE_ABOVE
        self._awake = asyncio.Event()
        self._closed = False
        self.fell_behind = False
        self._covered = 0
        self._known: dict[str, int] = {}

    def skip(self, covered: int, known: dict[str, int]) -> None:
        """The client has been sent the events up to sequence `covered`, and of the parts that stream so many characters: what of
        that is on its way here comes no second time. A part that streams no more is announced whole by its last event."""
        self._covered = covered
        self._known = known
        waiting, self._frames, self._size = self._frames, deque(), 0
        for frame in waiting:
            if isinstance(frame, EventFrame) or frame.delta.part_id in known:
                self.push(frame)

    def push(self, frame: Frame) -> None:
        if self._closed:
            return
        fresh = self._fresh(frame)
        if fresh is not None:
            self._add(fresh)

    def _fresh(self, frame: Frame) -> Frame | None:
        """What the client has not seen of a frame."""
        if isinstance(frame, EventFrame):
            return None if frame.event.seq is not None and frame.event.seq <= self._covered else frame
        known = self._known.get(frame.delta.part_id)
        if known is None or not (frame.text or known == ENDED):
            return frame
        gained = frame.delta.size - known
        if gained <= 0:
            return None
        self._known[frame.delta.part_id] = frame.delta.size
        return replace(frame, text=frame.text[-gained:])

    def _add(self, frame: Frame) -> None:
        self._frames.append(frame)
        self._size += frame.size
        if self._size > self._merge_above:
            self._merge()
            self._merge_above = min(self._size + MERGE_ABOVE, DISCONNECT_ABOVE)
        if self._size > DISCONNECT_ABOVE and len(self._frames) > 1:
            self.fell_behind = True
            self.close()
        self._awake.set()

    def _merge(self) -> None:
        """Keep one frame of each run of a part's frames; events keep their place between them."""
        merged: deque[Frame] = deque()
        open_parts: dict[str, int] = {}
        for frame in self._frames:
            if isinstance(frame, EventFrame):
                open_parts.clear()
                merged.append(frame)
                continue
            place = open_parts.get(frame.delta.part_id)
            if place is None:
                open_parts[frame.delta.part_id] = len(merged)
                merged.append(frame)
            else:
                earlier = merged[place]
                assert isinstance(earlier, PartFrame)
                merged[place] = earlier.joined_with(frame)
        self._frames = merged
        self._size = sum(frame.size for frame in merged)

    async def next(self) -> bytes | None:
        """Everything that waits, in one piece; None at the end."""
        while not self._frames:
            if self._closed:
                return None
            self._awake.clear()
            await self._awake.wait()
        return self._take()

    def _take(self) -> bytes:
        frames, self._frames, self._size = self._frames, deque(), 0
        self._merge_above = MERGE_ABOVE
        return b"".join(frame.encoded(self.form) for frame in frames)

    def close(self) -> None:
        self._closed = True
        if self.fell_behind:
            self._frames.clear()
        self._awake.set()
        self._bus.remove(self)


class MemoryBus:
    def __init__(self) -> None:
        self._listeners: dict[tuple[str | None, bool], set[Listener]] = {}
        self._wholes = PartMerger(lambda frame: self._send(frame, deltas=False), whole=True)
        self._gains = PartMerger(lambda frame: self._send(frame, deltas=True), whole=False)
        self._progress = PartMerger(lambda frame: self._send(frame, deltas=True), whole=True)
        self._mergers = (self._wholes, self._gains, self._progress)
        self._closed = False

    def subscribe(self, directory: str | None, *, deltas: bool = False, ids: bool = False, keeps_open: bool = True) -> Listener:
        """Listen to a directory, or with None to all; `deltas`: part frames carry only what the part gained; `ids`: events carry
        their sequence; `keeps_open`: the directory counts as in use."""
        listener = Listener(self, directory, deltas, ids, keeps_open)
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
        if event.session_id is not None:
            self.flush(event.session_id)
        frame = EventFrame(event)
        for deltas in (False, True):
            self._to(frame, event.directory, deltas)

    def publish_delta(self, delta: PartDelta) -> None:
        """Without a listener there is nothing to render; what a later one needs is in the store."""
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

    def _send(self, frame: PartFrame, *, deltas: bool) -> None:
        self._to(frame, frame.delta.directory, deltas)

    def _to(self, frame: Frame, directory: str | None, deltas: bool) -> None:
        for listener in tuple(self._listeners.get((None, deltas), ())):
            listener.push(frame)
        if directory is not None:
            for listener in tuple(self._listeners.get((directory, deltas), ())):
                listener.push(frame)
