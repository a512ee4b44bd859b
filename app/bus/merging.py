"""Fewer frames with the same text: deltas are merged before they are sent, and frames that wait for a slow client."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from app.bus.base import PartDelta
from app.bus.event_id import EventId
from app.bus.frames import Frame, PartFrame

log = logging.getLogger(__name__)

BYTES_PER_SECOND = 200_000
SHORTEST_INTERVAL = 0.01


def interval(frame_bytes: int) -> float:
    """Seconds until the part's next frame."""
    return max(SHORTEST_INTERVAL, frame_bytes / BYTES_PER_SECOND)


@dataclass(slots=True)
class _StreamingPart:
    """A part of which a frame was sent a moment ago. The next is sent when `pause` ends."""

    waiting: PartDelta
    deltas: bool
    texts: list[str] = field(default_factory=list)
    pause: asyncio.TimerHandle | None = None


class PartMerger:
    """Sends a part's first delta at once, and merges the next ones to a bounded number of bytes a second.

    Listeners are sent frames of the whole part, or with `deltas` of the text that it gained. A part that gained none, as a tool
    that makes progress, is sent whole to both.
    """

    def __init__(
        self,
        emit: Callable[[PartFrame, bool], None],
        failed: Callable[[PartDelta, bool], None],
        next_id: Callable[[], EventId],
    ) -> None:
        """`emit(frame, deltas)` sends a frame to the listeners of one kind. `failed` is called with a delta that could not be
        rendered: its listeners miss it. `next_id` gives each frame its id."""
        self._emit = emit
        self._next_id = next_id
        self._failed = failed
        self._sessions: dict[str, dict[tuple[str, bool], _StreamingPart]] = {}

    def __len__(self) -> int:
        """How many parts are remembered."""
        return sum(map(len, self._sessions.values()))

    def add(self, delta: PartDelta, *, deltas: bool) -> None:
        parts, key = self._sessions.setdefault(delta.session_id, {}), (delta.part_id, deltas)
        part = parts.get(key)
        if part is None:
            part = parts[key] = _StreamingPart(delta, deltas)
        part.waiting = delta
        part.texts.append(delta.text)
        if part.pause is None:
            self._send(part)

    def flush(self, session_id: str) -> None:
        """Send what waits, so that an event of the session comes after the text that preceded it."""
        for part in [*self._sessions.get(session_id, {}).values()]:
            if part.texts:
                self._send(part)

    def _send(self, part: _StreamingPart) -> None:
        """Send what waits and pause. A part for which nothing waits when its pause ends is forgotten."""
        if part.pause is not None:
            part.pause.cancel()
        if not part.texts:
            return self._forget(part)
        delta, text = part.waiting, "".join(part.texts)
        part.texts.clear()
        try:
            frame = PartFrame(delta, self._next_id(), text, None if part.deltas and text else delta.render())
        except Exception:
            log.exception("part %s could not be shown; who listens to it is disconnected", delta.part_id)
            self._failed(delta, part.deltas)
            return self._forget(part)
        part.pause = asyncio.get_running_loop().call_later(interval(frame.size), self._send, part)
        return self._emit(frame, part.deltas)

    def _forget(self, part: _StreamingPart) -> None:
        parts = self._sessions[part.waiting.session_id]
        del parts[part.waiting.part_id, part.deltas]
        if not parts:
            del self._sessions[part.waiting.session_id]


def merge_waiting(frames: Iterable[Frame]) -> deque[Frame]:
    """Join the frames of each part between two events. Events keep their place."""
    merged: deque[Frame] = deque()
    parts: dict[str, PartFrame] = {}
    for frame in frames:
        if isinstance(frame, PartFrame):
            earlier = parts.get(frame.delta.part_id)
            parts[frame.delta.part_id] = earlier.merged_with(frame) if earlier else frame
        else:
            merged.extend(parts.values())
            merged.append(frame)
            parts.clear()
    merged.extend(parts.values())
    return merged
