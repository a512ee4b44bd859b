"""The patterns of permission rules: `*` matches any run of characters, `?` matches one character, all else matches itself.

Matching does not backtrack: it searches the literal runs between the stars from left to right, so that the worst case is
the length of the value times the length of the pattern.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile

_ANY_REST = " *"


@dataclass(frozen=True, slots=True)
class _Glob:
    """`runs` are the texts between the stars, each of a fixed length. A pattern without a star is a single run."""

    runs: tuple[re.Pattern[str], ...]
    lengths: tuple[int, ...]

    def matches(self, value: str) -> bool:
        if len(self.runs) == 1:
            return self.runs[0].fullmatch(value) is not None
        end = len(value) - self.lengths[-1]
        if not self.runs[0].match(value) or end < self.lengths[0] or not self.runs[-1].fullmatch(value, end):
            return False
        return self._middle_fits(value, self.lengths[0], end)

    def _middle_fits(self, value: str, start: int, end: int) -> bool:
        for run in self.runs[1:-1]:
            found = run.search(value, start, end)
            if found is None:
                return False
            start = found.end()
        return True


@lru_cache(maxsize=2048)
def _compiled(pattern: str) -> _Glob:
    runs = re.sub(r"\*+", "*", pattern).split("*")
    return _Glob(tuple(_fixed_run(run) for run in runs), tuple(len(run) for run in runs))


def _fixed_run(run: str) -> re.Pattern[str]:
    return re.compile("".join("." if char == "?" else re.escape(char) for char in run), re.DOTALL)


def matches(pattern: str, value: str) -> bool:
    """Matches the whole value, case-sensitive. A pattern that ends in ` *` also matches the value without that ending."""
    if _compiled(pattern).matches(value):
        return True
    return pattern.endswith(_ANY_REST) and _compiled(pattern.removesuffix(_ANY_REST)).matches(value)


def covers(wide: str, narrow: str) -> bool:
    """True if `wide` certainly matches every value that `narrow` matches. False if that is not certain."""
    if wide == narrow or set(wide) == {"*"}:
        return True
    if "?" in wide and "*" in narrow:
        return False
    return matches(wide, narrow) and (not narrow.endswith(_ANY_REST) or matches(wide, narrow.removesuffix(_ANY_REST)))


def disjoint(one: str, other: str) -> bool:
    """True if certainly no value matches both patterns. False if that is not certain."""
    return _literal_starts_clash(one, other) or _literal_ends_clash(one, other) or _plain_and_unmatched(one, other)


def is_plain(pattern: str) -> bool:
    return "*" not in pattern and "?" not in pattern


def _plain_and_unmatched(one: str, other: str) -> bool:
    if is_plain(one):
        return not matches(other, one)
    return is_plain(other) and not matches(one, other)


def _literal_starts_clash(one: str, other: str) -> bool:
    first, second = _literal_start(one), _literal_start(other)
    return not (first.startswith(second) or second.startswith(first))


def _literal_start(pattern: str) -> str:
    return "".join(takewhile(lambda char: char not in "*?", pattern.removesuffix(_ANY_REST)))


def _literal_ends_clash(one: str, other: str) -> bool:
    if one.endswith(_ANY_REST) or other.endswith(_ANY_REST):
        return False
    first, second = _literal_start(one[::-1]), _literal_start(other[::-1])
    return not (first.startswith(second) or second.startswith(first))
