"""One client's queue of frames: what waits for it, how much may wait, and in which pieces it is given out."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from app.bus.base import ENDED, StreamingParts
from app.bus.frames import PIECE_BYTES, EventFrame, Format, Frame, PartFrame, pieces

log = logging.getLogger(__name__)

MERGE_ABOVE = 1_000_000
"""Bytes that wait for one client, above which its part frames are merged."""
STALLED_ABOVE, STALLED_SECONDS = 8_000_000, 2.0
"""A client for which more waits, and that takes nothing for so long, is cut off. It may resume."""
DISCONNECT_ABOVE = 64_000_000
"""A client for which more waits is cut off even if it reads, but for what is published at this moment: that is there anyway, and
clients for which the same events wait share them."""


class Bus(Protocol):
    burst: int
    """Changes whenever the event loop has had the time to let clients take something."""

    def remove(self, listener: "Listener") -> None: ...


class Listener:
    """`directory` None: of all directories. `form` is how its frames are written."""

    def __init__(self, bus: Bus, directory: str | None, *, deltas: bool, ids: bool, keeps_open: bool) -> None:
        self._bus = bus
        self.directory = directory
        self.deltas = deltas
        self.keeps_open = keeps_open
        self.form = Format(global_=directory is None, ids=ids)
        self.fell_behind = False
        self._frames: deque[Frame] = deque()
        self._pieces: Iterator[bytes] = iter(())
        self._size = 0
        self._burst, self._before_burst = bus.burst, 0
        self._taken = 0
        self._merge_above = MERGE_ABOVE
        self._stall_timer: asyncio.TimerHandle | None = None
        self._awake = asyncio.Event()
        self.closed = False
        self._paused = False
        self._covered = 0
        self._known: dict[str, int] = {}

    # A client that is sent the journal first.

    def pause(self) -> None:
        """Keep nothing of what is published: the client is sent it from the journal."""
        self._paused = True
        self._clear()

    def unpause(self) -> None:
        self._paused = False

    def resume(self, covered: int, streaming: StreamingParts) -> None:
        """The client is sent the events up to the sequence `covered` from the journal: of what waits only newer ones are kept.
        Behind them come the `streaming` parts, as they are now: what is on its way of their text comes no second time. A part
        that streams no more is announced whole by its last event."""
        self._covered, self._known = covered, dict(streaming.known)
        waiting = [frame for frame in self._frames if isinstance(frame, EventFrame)]
        self._clear()
        for frame in (*waiting, *map(EventFrame, streaming.events)):
            self.push(frame)

    def _clear(self) -> None:
        self._frames.clear()
        self._size = self._before_burst = 0
        self._merge_above = MERGE_ABOVE

    # What comes.

    def push(self, frame: Frame) -> None:
        if self.closed or self._paused:
            return
        if self._covered or self._known:
            fresh = self._fresh(frame)
            if fresh is None:
                return
            frame = fresh
        self._add(frame)

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
        return frame if gained >= len(frame.text) else replace(frame, text=frame.text[-gained:])

    def _add(self, frame: Frame) -> None:
        if self._burst != self._bus.burst:
            self._burst, self._before_burst = self._bus.burst, self._size
        self._frames.append(frame)
        self._size += frame.size
        if self._size > self._merge_above:
            self._relieve()
        self._awake.set()

    def _relieve(self) -> None:
        """Much waits: it is merged, and a client that is too far behind is cut off."""
        self._merge()
        self._merge_above = self._size + MERGE_ABOVE
        if min(self._before_burst, self._size) > DISCONNECT_ABOVE:
            self._cut_off()
        elif self._size > STALLED_ABOVE and self._stall_timer is None:
            self._watch()

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

    def _watch(self) -> None:
        self._stall_timer = asyncio.get_running_loop().call_later(STALLED_SECONDS, self._look, self._taken)

    def _look(self, taken: int) -> None:
        self._stall_timer = None
        if self.closed or self._size <= STALLED_ABOVE:
            return
        if self._taken == taken:
            self._cut_off()
        else:
            self._watch()

    def _cut_off(self) -> None:
        self.fell_behind = True
        self._clear()
        self.close()

    # What goes.

    async def next(self) -> bytes | None:
        """The next piece of what waits, about PIECE_BYTES at most; None at the end."""
        self._taken += 1
        piece = next(self._pieces, None)
        if piece is not None:
            return piece
        frames = await self.take()
        if frames is None:
            return None
        try:
            self._pieces = pieces(frames, self.form)
            return next(self._pieces)
        except Exception:
            log.exception("a frame could not be written; its client is disconnected")
            self.close()
            return None

    async def take(self) -> list[Frame] | None:
        """Wait for frames, and take as many as have about PIECE_BYTES together, one at least; None at the end."""
        while not self._frames:
            if self.closed:
                return None
            self._awake.clear()
            await self._awake.wait()
        self._taken += 1
        if self._size <= PIECE_BYTES:
            taken = list(self._frames)
            self._clear()
            return taken
        taken, size = [], 0
        while self._frames and (not taken or size + self._frames[0].size <= PIECE_BYTES):
            taken.append(self._frames.popleft())
            size += taken[-1].size
        self._size -= size
        self._merge_above = self._size + MERGE_ABOVE
        return taken

    def close(self) -> None:
        """What waits is still given out, then the end."""
        self.closed = True
        if self._stall_timer is not None:
            self._stall_timer.cancel()
        self._awake.set()
        self._bus.remove(self)
