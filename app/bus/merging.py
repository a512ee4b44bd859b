"""How often a streaming part is sent: its first delta at once, then merged to a bounded number of bytes a second."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from app.bus.base import PartDelta
from app.bus.frames import PartFrame

log = logging.getLogger(__name__)

BYTES_PER_SECOND = 200_000
SHORTEST_INTERVAL = 0.01


def interval(frame_bytes: int) -> float:
    """Seconds until the part's next frame."""
    return max(SHORTEST_INTERVAL, frame_bytes / BYTES_PER_SECOND)


@dataclass(slots=True)
class _Streaming:
    """A part of which a frame was sent a moment ago; `pause` ends when the next may be."""

    session_id: str
    part_id: str
    waiting: PartDelta | None = None
    pieces: list[str] = field(default_factory=list)
    pause: asyncio.TimerHandle | None = None


class PartMerger:
    """Turns the deltas of parts into frames, of the whole part or (`whole` false) of the gained text alone."""

    def __init__(self, emit: Callable[[PartFrame], None], failed: Callable[[PartDelta], None], *, whole: bool) -> None:
        """`failed` is called with a delta that could not be rendered: its listeners miss it."""
        self._emit = emit
        self._failed = failed
        self._whole = whole
        self._sessions: dict[str, dict[str, _Streaming]] = {}

    def __len__(self) -> int:
        """How many parts are remembered."""
        return sum(map(len, self._sessions.values()))

    def add(self, delta: PartDelta) -> None:
        parts = self._sessions.setdefault(delta.session_id, {})
        part = parts.setdefault(delta.part_id, _Streaming(delta.session_id, delta.part_id))
        part.waiting = delta
        part.pieces.append(delta.text)
        if part.pause is None:
            self._send(part)

    def flush(self, session_id: str) -> None:
        """Send what waits, so that an event of the session comes after the text that preceded it."""
        for part in [*self._sessions.get(session_id, {}).values()]:
            if part.waiting is not None:
                self._send(part)

    def _send(self, part: _Streaming) -> None:
        """What waits, or else the pause is over and the part is forgotten."""
        if part.pause is not None:
            part.pause.cancel()
        delta, text = part.waiting, "".join(part.pieces)
        part.waiting, part.pieces = None, []
        if delta is None or not (text or self._whole):
            self._forget(part)
            return
        try:
            frame = PartFrame(delta, text, delta.render() if self._whole else None)
        except Exception:
            log.exception("part %s could not be shown; who listens to it is disconnected", delta.part_id)
            self._failed(delta)
            self._forget(part)
            return
        part.pause = asyncio.get_running_loop().call_later(interval(frame.size), self._send, part)
        self._emit(frame)

    def _forget(self, part: _Streaming) -> None:
        parts = self._sessions[part.session_id]
        del parts[part.part_id]
        if not parts:
            del self._sessions[part.session_id]
