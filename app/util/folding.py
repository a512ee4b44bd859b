"""Text as searches compare it: without case, accents and differences of width. Pure."""

import re
import unicodedata
from collections.abc import Iterator

_ACCENTS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_COMPOSING = "\u1160-\u11ff\u3099\u309a"
"""What makes one character with the one before it, and is no accent: the vowels of Hangul, the voicing of kana."""

_ACCENT = re.compile(f"[{_ACCENTS}]+")
_JOINED = re.compile(f"[{_ACCENTS}{_COMPOSING}]")
_CLUSTER = re.compile(f".[{_ACCENTS}{_COMPOSING}]*", re.DOTALL)


def fold_accents(text: str) -> str:
    """NUL, which databases cannot hold, becomes a space."""
    text = text.replace("\0", " ")
    if text.isascii():
        return text.lower()
    plain = _ACCENT.sub("", unicodedata.normalize("NFKD", text)).casefold()
    return unicodedata.normalize("NFC", plain)


class FoldedText:
    """A text with its folded form, and where each folded character comes from."""

    def __init__(self, text: str) -> None:
        self.folded = fold_accents(text)
        self._ends: list[int] = []
        self._starts: list[int] = []
        if len(self.folded) != len(text) or _JOINED.search(text):
            self._map_clusters(text)

    def _map_clusters(self, text: str) -> None:
        pieces = []
        for cluster in _CLUSTER.finditer(text):
            piece = fold_accents(cluster[0])
            pieces.append(piece)
            self._starts += [cluster.start()] * len(piece)
            self._ends += [cluster.end()] * len(piece)
        self.folded = "".join(pieces)

    def occurrences(self, words: list[str]) -> Iterator[tuple[int, int, str]]:
        """[start, end) in the text, and the folded word that is found there."""
        pattern = re.compile(f"(?=({'|'.join(re.escape(word) for word in sorted(words, key=len, reverse=True))}))")
        for found in pattern.finditer(self.folded):
            start, end = found.span(1)
            if self._starts:
                yield self._starts[start], self._ends[end - 1], found[1]
            else:
                yield start, end, found[1]
