"""One client's event stream: a bounded queue of frames, between the bus and the client's connection."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING

from app.events.bus.base import ENDED, Audience, Event, EventId, StreamingParts
from app.events.bus.frames import PIECE_BYTES, EventFrame, Format, Frame, PartFrame, merge_waiting, pieces

if TYPE_CHECKING:
    from app.events.bus.memory import MemoryBus

log = logging.getLogger(__name__)

MERGE_ABOVE = 1_000_000
"""Bytes. A client for which more waits gets its part frames merged."""
STALLED_ABOVE, STALLED_SECONDS = 8_000_000, 2.0
"""Bytes and seconds. A client for which more waits, and that takes nothing for so long, is disconnected. It may resume."""
DISCONNECT_ABOVE = 64_000_000
"""Bytes. A client for which more waits is disconnected even if it reads. Events that were published at one moment do not count:
clients share them in memory."""


class Listener:
    """Receives what is published from now on in a directory, or with None in all."""

    def __init__(
        self,
        bus: "MemoryBus",
        directory: str | None,
        *,
        deltas: bool = False,
        ids: bool = False,
        second: bool = False,
        keeps_open: bool = True,
        audience: Audience | None = None,
        user: str | None = "",
        steering_only: bool = False,
        session_id: str | None = None,
    ) -> None:
        """`deltas`: send delta frames. `ids`: events carry their sequence. `second`: write as the second API does. `keeps_open`:
        the directory counts as in use. `audience`: None receives everything. `user`: whose steering to receive; empty on a server
        without users, None for a listener that is no client and receives all. `session_id`: receive this session's events alone,
        and no part frames."""
        self._bus = bus
        self.began_behind = bus.newest
        """The newest sequence that had been published when this listener began."""
        self.directory = directory
        self.deltas = deltas
        self.keeps_open = keeps_open
        self.audience = audience
        self.form = Format(directory is None, ids, audience.cursors if audience else None, second)
        self._user = user
        self._steering_only = steering_only
        self._session_id = session_id
        self.closed = False
        self.fell_behind = False
        self._frames: deque[Frame] = deque()
        self._size = 0
        self._merge_above = MERGE_ABOVE
        self._taken = 0
        """How often frames were taken."""
        self._is_watched = False
        self._burst = bus.burst
        self._size_before_burst = 0
        """How much waited before the events of the present moment: they do not count for DISCONNECT_ABOVE."""
        self._awake = asyncio.Event()
        self._paused = False
        self._covered = 0
        """A client that comes back is sent the journal's events up to this sequence beside the queue."""
        self._known: dict[str, int] = {}
        """How many characters of each streaming part it is sent beside the queue."""
        bus.add(self)

    # For a client that is sent the journal first.

    def pause(self) -> None:
        """Drops what is published: the client will be sent it from the journal."""
        self._paused = True
        self._clear()

    def unpause(self) -> None:
        self._paused = False

    def resume(self, covered: int, streaming: StreamingParts) -> None:
        """The client is sent the events up to the sequence `covered` from the journal, so only newer ones stay in the queue. The
        `streaming` parts follow as they are now, later only their new text. A part that has ended gets no more text: its last
        event has all of it."""
        self._covered, self._known = covered, dict(streaming.known)
        waiting = [frame for frame in self._frames if not isinstance(frame, PartFrame)]
        self._clear()
        for frame in (*waiting, *map(self.frame, streaming.events)):
            if self.receives(frame):
                self.push(frame)

    def _clear(self) -> None:
        self._frames.clear()
        self._size = self._size_before_burst = 0
        self._merge_above = MERGE_ABOVE

    # Into the queue.

    def receives(self, frame: Frame) -> bool:
        if isinstance(frame, PartFrame):
            is_wanted = not self._steering_only and self._session_id is None
            return is_wanted and (self.audience is None or self.audience.owns(frame.delta.owner))
        event = frame.event
        if self._session_id not in (None, event.session_id):
            return False
        if event.steers:
            return self._user in (None, event.owner)
        if self._steering_only or (event.is_second_only and not self.form.second and self._user is not None):
            return False
        return self.audience is None or self.audience.receives(event)

    def push(self, frame: Frame) -> None:
        if self.closed or self._paused:
            return
        unsent = self._unsent(frame)
        if unsent is None:
            return
        if unsent.id.seq < self._covered:
            unsent = replace(unsent, id=EventId.behind(self._covered))
        if self._burst != self._bus.burst:
            self._burst, self._size_before_burst = self._bus.burst, self._size
        self._frames.append(unsent)
        self._size += unsent.size
        if self._size > self._merge_above:
            self._merge()
        self._awake.set()

    def _unsent(self, frame: Frame) -> Frame | None:
        """What the client has not been sent of a frame; None if it has all."""
        if not isinstance(frame, PartFrame):
            return None if frame.event.seq is not None and frame.event.seq <= self._covered else frame
        known = self._known.get(frame.delta.part_id)
        is_change_without_text = not frame.text and known != ENDED
        if known is None or is_change_without_text:
            return frame
        unknown = frame.delta.size - known
        if unknown <= 0:
            return None
        return frame if unknown >= len(frame.text) else replace(frame, text=frame.text[-unknown:])

    def frame(self, event: Event) -> EventFrame:
        """The frame of an event that only this client is sent."""
        return EventFrame(event, event.id(max(self._bus.newest, self._covered)))

    def _merge(self) -> None:
        self._frames = merge_waiting(self._frames)
        self._size = sum(frame.size for frame in self._frames)
        self._merge_above = self._size + MERGE_ABOVE
        if min(self._size_before_burst, self._size) > DISCONNECT_ABOVE:
            self.cut_off()
        elif self._size > STALLED_ABOVE and not self._is_watched:
            self._check_later_if_stalled()

    def _check_later_if_stalled(self) -> None:
        self._is_watched = True
        asyncio.get_running_loop().call_later(STALLED_SECONDS, self._cut_off_if_stalled, self._taken)

    def _cut_off_if_stalled(self, taken_before: int) -> None:
        self._is_watched = False
        if self.closed or self._size <= STALLED_ABOVE:
            return
        if self._taken == taken_before:
            self.cut_off()
        else:
            self._check_later_if_stalled()

    def cut_off(self) -> None:
        self.fell_behind = True
        self._clear()
        self.close()

    # Out of the queue.

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields what waits and what is published later, in pieces of about PIECE_BYTES at most, until the listener is closed."""
        while (frames := await self.take()) is not None:
            try:
                written = pieces(frames, self.form)
            except Exception:
                log.exception("a frame could not be written; its client is disconnected")
                self.close()
                return
            for piece in written:
                self._taken += 1
                yield piece

    async def take(self) -> list[Frame] | None:
        """Waits for frames and takes at least one, or as many as have about PIECE_BYTES together. None at the end."""
        while not self._frames:
            if self.closed:
                return None
            self._awake.clear()
            await self._awake.wait()
        self._taken += 1
        taken: list[Frame] = []
        size = 0
        while self._frames and (not taken or size + self._frames[0].size <= PIECE_BYTES):
            taken.append(self._frames.popleft())
            size += taken[-1].size
        self._size -= size
        self._merge_above = self._size + MERGE_ABOVE
        return taken

    def close(self) -> None:
        """Frames that wait can still be taken."""
        self.closed = True
        self._awake.set()
        self._bus.remove(self)
