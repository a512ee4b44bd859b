"""What a terminal has printed, as far back as it is kept."""

LIMIT_BYTES = 2 * 1024 * 1024
PIECE_BYTES = 128 * 1024
"""What is read at a time: 65,536 units."""
_UNIT = 2


class Scrollback:
    """Text by position: the number of UTF-16 units that were printed before, which is how JavaScript counts a string's length.

    It is kept as UTF-16, so that a position is an offset. Of the oldest text is dropped what is above LIMIT_BYTES.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._kept = bytearray()
        self.start = 0

    @property
    def end(self) -> int:
        return self.start + len(self._kept) // _UNIT

    def append(self, text: str) -> None:
        self._kept += text.encode("utf-16-le")
        excess = len(self._kept) - self._limit
        if excess > 0:
            excess += excess % _UNIT
            del self._kept[:excess]
            self.start += excess // _UNIT

    def read(self, position: int) -> tuple[str, int]:
        """Text from a position that is kept, at most PIECE_BYTES of it, and the position behind it. Of a character that
        lost its first half the other is replaced."""
        offset = (position - self.start) * _UNIT
        piece = self._kept[offset : offset + PIECE_BYTES]
        if len(piece) == PIECE_BYTES and _is_first_half(piece):
            del piece[-_UNIT:]
        return piece.decode("utf-16-le", "replace"), position + len(piece) // _UNIT

    def clear(self) -> None:
        self.start = self.end
        self._kept.clear()


def _is_first_half(piece: bytearray) -> bool:
    """Whether the last unit is the first of a surrogate pair."""
    return 0xD8 <= piece[-1] <= 0xDB
