"""Tracks the open text and reasoning blocks of a stream, so that each starts and ends once."""

from typing import Literal

from app.provider.base import Metadata, ReasoningDelta, ReasoningEnd, ReasoningStart, StreamEvent, TextDelta, TextEnd, TextStart

BlockKind = Literal["text", "reasoning"]


class Blocks:
    def __init__(self) -> None:
        self._open: dict[str, BlockKind] = {}

    def start(self, kind: BlockKind, block_id: str, metadata: Metadata | None = None) -> list[StreamEvent]:
        if block_id in self._open:
            return []
        self._open[block_id] = kind
        return [TextStart(block_id, metadata) if kind == "text" else ReasoningStart(block_id, metadata)]

    def delta(self, kind: BlockKind, block_id: str, text: str) -> list[StreamEvent]:
        """Starts the block if it is not open. No events for empty text."""
        if not text:
            return []
        delta = TextDelta(block_id, text) if kind == "text" else ReasoningDelta(block_id, text)
        return [delta] if block_id in self._open else [*self.start(kind, block_id), delta]

    def end(self, block_id: str, metadata: Metadata | None = None) -> list[StreamEvent]:
        kind = self._open.pop(block_id, None)
        if kind is None:
            return []
        return [TextEnd(block_id, metadata) if kind == "text" else ReasoningEnd(block_id, metadata)]

    def end_all(self) -> list[StreamEvent]:
        return [event for block_id in tuple(self._open) for event in self.end(block_id)]


class TurningBlocks:
    """For wire formats without block boundaries: text ends an open reasoning block, and reasoning an open text block."""

    def __init__(self) -> None:
        self._blocks = Blocks()
        self._kind: BlockKind | None = None
        self._count = 0
        self._id = ""

    def say(self, kind: BlockKind, text: str) -> list[StreamEvent]:
        if not text:
            return []
        ended = [] if kind == self._kind else self._turn(kind)
        return ended + self._blocks.delta(kind, self._id, text)

    def end(self) -> list[StreamEvent]:
        self._kind = None
        return self._blocks.end_all()

    def _turn(self, kind: BlockKind) -> list[StreamEvent]:
        ended = self.end()
        self._kind = kind
        self._count += 1
        self._id = f"{kind}-{self._count}"
        return ended
