"""What the search index holds of a text, and of a word that is looked for. Pure.

Both indexes, SQLite's trigrams and PostgreSQL's pg_trgm, know sequences of three characters; in Chinese and Japanese words of
one and two are usual, and pg_trgm knows letters beyond ASCII only where the database's locale does. So each of these characters
becomes four ASCII letters, in capitals, which folded text does not have: a word is found in a text if and only if its code is.
"""

from app.util.folding import fold_accents

_FIRST, _LAST = 0x3040, 0x9FFF
"""Kana and the ideographs in common use."""
_HEADS, _TAILS = "ABCDEF", "GHIJKLMNOPQRSTUVWXYZ"
"""A code begins with one of the first and goes on with three of the others, so none is found across two others."""


class _Codes(dict[int, str | int]):
    def __missing__(self, point: int) -> str | int:
        self[point] = code = _code(point - _FIRST) if _FIRST <= point <= _LAST else point
        return code


def _code(number: int) -> str:
    number, last = divmod(number, 20)
    number, third = divmod(number, 20)
    head, second = divmod(number, 20)
    return _HEADS[head] + _TAILS[second] + _TAILS[third] + _TAILS[last]


_CODES = _Codes()


def encode(text: str) -> str:
    folded = fold_accents(text)
    return folded if folded.isascii() else folded.translate(_CODES)
