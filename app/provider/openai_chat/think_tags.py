"""Separates `<think>…</think>` from text: models that are served without a reasoning parser write reasoning into the text."""

from app.provider.wire.blocks import BlockKind

_TAGS: dict[BlockKind, str] = {"text": "<think>", "reasoning": "</think>"}
_OTHER: dict[BlockKind, BlockKind] = {"text": "reasoning", "reasoning": "text"}


class ThinkTags:
    """Splits streamed text into text and reasoning, and drops the whitespace around tags."""

    def __init__(self) -> None:
        self._kind: BlockKind = "text"
        self._held = ""
        self._after_tag = False

    def feed(self, text: str) -> list[tuple[BlockKind, str]]:
        """Returns the complete pieces; holds back what may be the start of a tag."""
        if self._kind == "text" and not self._held and not self._after_tag and "<" not in text:
            return [("text", text)]
        self._held += text
        pieces: list[tuple[BlockKind, str]] = []
        while (at := self._held.find(_TAGS[self._kind])) >= 0:
            pieces += self._take(at)
            self._turn()
        return pieces + self._take(len(self._held) - _partial_tag(self._held, _TAGS[self._kind]))

    def flush(self) -> list[tuple[BlockKind, str]]:
        return self._take(len(self._held))

    def _turn(self) -> None:
        self._held = self._held[len(_TAGS[self._kind]) :]
        self._kind = _OTHER[self._kind]
        self._after_tag = True

    def _take(self, length: int) -> list[tuple[BlockKind, str]]:
        piece, self._held = self._held[:length], self._held[length:]
        if self._after_tag:
            piece = piece.lstrip()
        if not piece:
            return []
        self._after_tag = False
        return [(self._kind, piece)]


def _partial_tag(text: str, tag: str) -> int:
    """The length of the longest suffix of `text` that is a prefix of `tag`."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:size])), 0)
