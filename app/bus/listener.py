"""One client's queue of frames: what it takes in, how much may wait in it, and in which pieces it is read."""

import asyncio
import logging
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from app.bus.base import ENDED, Audience, Event, StreamingParts
from app.bus.event_id import EventId
from app.bus.frames import PIECE_BYTES, EventFrame, Format, Frame, pieces
from app.bus.merging import merge_waiting

log = logging.getLogger(__name__)

MERGE_ABOVE = 1_000_000
"""Bytes. A client for which more waits gets its part frames merged."""
STALLED_ABOVE, STALLED_SECONDS = 8_000_000, 2.0
"""Bytes and seconds. A client for which more waits, and that reads nothing meanwhile, is disconnected. It may resume."""
DISCONNECT_ABOVE = 64_000_000
"""A client for which more waits is disconnected even if it reads. What is published at one moment does not count: it is in memory
anyway, and clients share it."""


class Bus(Protocol):
    burst: int
    """Changes when the event loop has given clients the time to read."""
    newest: int
    """The newest sequence that listeners were given."""

    def remove(self, listener: "Listener") -> None: ...


@dataclass(frozen=True, slots=True)
class _Resumption:
    """What a client that comes back is sent from the journal: events up to the sequence `covered`, and of each streaming part the
    first `known` characters."""

    covered: int
    known: dict[str, int]

    def unsent(self, frame: Frame) -> Frame | None:
        """What of a frame is still to be sent. Its id is none before the events that are covered."""
        rest = self._rest(frame)
        if rest is None or rest.id.seq >= self.covered:
            return rest
        return replace(rest, id=EventId.behind(self.covered))

    def _rest(self, frame: Frame) -> Frame | None:
        if isinstance(frame, EventFrame):
            return None if frame.event.seq is not None and frame.event.seq <= self.covered else frame
        known = self.known.get(frame.delta.part_id)
        if known is None or not (frame.text or known == ENDED):
            return frame
        gained = frame.delta.size - known
        if gained <= 0:
            return None
        return frame if gained >= len(frame.text) else replace(frame, text=frame.text[-gained:])


class Listener:
    """`directory` is None for all directories. `form` is how its frames are written."""

    def __init__(
        self,
        bus: Bus,
        directory: str | None,
        *,
        deltas: bool = False,
        ids: bool = False,
        keeps_open: bool = True,
        audience: Audience | None = None,
        second: bool = False,
        user: str | None = "",
        steering_only: bool = False,
    ) -> None:
        self._bus = bus
        self.began_behind = bus.newest
        """The newest sequence that clients had been given when this one began to listen."""
        self.directory = directory
        self.deltas = deltas
        self.keeps_open = keeps_open
        self.audience = audience
        self.form = Format(directory is None, ids, audience.cursors if audience else None, second)
        self._user = user
        self._steering_only = steering_only
        self.fell_behind = False
        self._frames: deque[Frame] = deque()
        self._pieces: Iterator[bytes] = iter(())
        self._size = 0
        self._burst, self._before_burst = bus.burst, 0
        self._reads = 0
        self._merge_above = MERGE_ABOVE
        self._stall_timer: asyncio.TimerHandle | None = None
        self._repeat_timer: asyncio.TimerHandle | None = None
        self._awake = asyncio.Event()
        self.closed = False
        self._paused = False
        self._resumption: _Resumption | None = None

    # For a client that is sent the journal first.

    def pause(self) -> None:
        """Drop what is published: the client is sent it from the journal."""
        self._paused = True
        self._clear()

    def unpause(self) -> None:
        self._paused = False

    def resume(self, covered: int, streaming: StreamingParts) -> None:
        """The client is sent the events up to the sequence `covered` from the journal. Only newer ones stay in the queue. The
        `streaming` parts follow as they are now, and later only what they gain. The last event of a part that has ended shows all
        of it."""
        self._resumption = _Resumption(covered, dict(streaming.known))
        waiting = [frame for frame in self._frames if isinstance(frame, EventFrame)]
        self._clear()
        for frame in (*waiting, *map(self.frame, streaming.events)):
            if self.receives(frame):
                self.push(frame)

    def _clear(self) -> None:
        self._frames.clear()
        self._size = self._before_burst = 0
        self._merge_above = MERGE_ABOVE

    # Into the queue.

    def receives(self, frame: Frame) -> bool:
        if isinstance(frame, EventFrame) and frame.event.steers:
            return self._user is None or self._user == frame.event.owner
        if self._steering_only or self._is_of_other_api(frame):
            return False
        if self.audience is None:
            return True
        return self.audience.receives(frame.event if isinstance(frame, EventFrame) else frame.delta)

    def _is_of_other_api(self, frame: Frame) -> bool:
        """Never for who passes events on to other servers."""
        is_client = self._user is not None
        return is_client and not self.form.second and isinstance(frame, EventFrame) and frame.event.is_second_only

    def push(self, frame: Frame) -> None:
        if self.closed or self._paused:
            return
        unsent = self._resumption.unsent(frame) if self._resumption else frame
        if unsent is not None:
            self._add(unsent)

    def frame(self, event: Event) -> EventFrame:
        """Of an event for this client alone."""
        covered = self._resumption.covered if self._resumption else 0
        return EventFrame(event, event.id(max(self._bus.newest, covered)))

    def repeat(self, event: Event, seconds: float) -> None:
        """Push the event every `seconds`, until the listener is closed."""
        if not self.closed:
            self._repeat_timer = asyncio.get_running_loop().call_later(seconds, self._repeat, event, seconds)

    def _repeat(self, event: Event, seconds: float) -> None:
        self.push(self.frame(event))
        self.repeat(event, seconds)

    def _add(self, frame: Frame) -> None:
        if self._burst != self._bus.burst:
            self._burst, self._before_burst = self._bus.burst, self._size
        self._frames.append(frame)
        self._size += frame.size
        if self._size > self._merge_above:
            self._bound()
        self._awake.set()

    def _bound(self) -> None:
        """Merge what waits, and disconnect a client that is too far behind."""
        self._frames = merge_waiting(self._frames)
        self._size = sum(frame.size for frame in self._frames)
        self._merge_above = self._size + MERGE_ABOVE
        if min(self._before_burst, self._size) > DISCONNECT_ABOVE:
            self._disconnect()
        elif self._size > STALLED_ABOVE and self._stall_timer is None:
            self._watch_for_stall()

    def _watch_for_stall(self) -> None:
        self._stall_timer = asyncio.get_running_loop().call_later(STALLED_SECONDS, self._disconnect_if_stalled, self._reads)

    def _disconnect_if_stalled(self, reads_before: int) -> None:
        self._stall_timer = None
        if self.closed or self._size <= STALLED_ABOVE:
            return
        if self._reads == reads_before:
            self._disconnect()
        else:
            self._watch_for_stall()

    def _disconnect(self) -> None:
        self.fell_behind = True
        self._clear()
        self.close()

    # Out of the queue.

    async def next(self) -> bytes | None:
        """Wait for the next piece, of about PIECE_BYTES at most. None at the end."""
        self._reads += 1
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
        """Wait for frames, and take at least one, or as many as have about PIECE_BYTES together. None at the end."""
        while not self._frames:
            if self.closed:
                return None
            self._awake.clear()
            await self._awake.wait()
        self._reads += 1
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
        """What waits can still be read, then the end."""
        self.closed = True
        for timer in (self._stall_timer, self._repeat_timer):
            if timer is not None:
                timer.cancel()
        self._awake.set()
        self._bus.remove(self)
