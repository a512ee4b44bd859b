"""How often a streaming part is sent: its first delta at once, then merged to a bounded number of bytes a second."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from app.bus.base import PartDelta
from app.bus.frames import PartFrame

BYTES_PER_SECOND = 200_000
SHORTEST_INTERVAL = 0.01


def interval(frame_bytes: int) -> float:
    """Seconds until the part's next frame."""
    return max(SHORTEST_INTERVAL, frame_bytes / BYTES_PER_SECOND)


@dataclass(slots=True)
class _Streaming:
    next_at: float = 0.0
    waiting: PartDelta | None = None
    text: str = ""
    timer: asyncio.TimerHandle | None = None


class PartMerger:
    """Turns the deltas of parts into frames, of the whole part or (`whole` false) of the gained text alone."""

    def __init__(self, emit: Callable[[PartFrame], None], *, whole: bool) -> None:
        self._emit = emit
        self._whole = whole
        self._sessions: dict[str, dict[str, _Streaming]] = {}

    def add(self, delta: PartDelta) -> None:
        parts = self._sessions.setdefault(delta.session_id, {})
        part = parts.setdefault(delta.part_id, _Streaming())
        part.waiting = delta
        part.text += delta.text
        if part.timer is not None:
            return
        loop = asyncio.get_running_loop()
        if loop.time() >= part.next_at:
            self._send(part)
        else:
            part.timer = loop.call_at(part.next_at, self._send, part)

    def flush(self, session_id: str) -> None:
        """Send what waits, so that an event of the session comes after the text that preceded it."""
        for part in self._sessions.get(session_id, {}).values():
            if part.waiting is not None:
                self._send(part)

    def forget(self, session_id: str) -> None:
        self.flush(session_id)
        self._sessions.pop(session_id, None)

    def _send(self, part: _Streaming) -> None:
        if part.timer is not None:
            part.timer.cancel()
            part.timer = None
        delta, text = part.waiting, part.text
        part.waiting, part.text = None, ""
        if delta is None or not (text or self._whole):
            return
        frame = PartFrame(delta, text, delta.render() if self._whole else None)
        part.next_at = asyncio.get_running_loop().time() + interval(frame.size)
        self._emit(frame)
