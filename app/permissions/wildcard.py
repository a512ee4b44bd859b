"""The patterns of permission rules: `*` matches any run of characters, `?` matches one character, all else matches itself."""

import re
from fnmatch import translate
from functools import lru_cache
from itertools import takewhile

_ANY_REST = " *"


@lru_cache(maxsize=2048)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Its groups are atomic: matching takes no longer than the pattern's length times the value's."""
    return re.compile(translate(pattern.replace("[", "[[]")))


def matches(pattern: str, value: str) -> bool:
    """Matches the whole value, case-sensitive. A pattern that ends in ` *` also matches the value without that ending."""
    if _compiled(pattern).match(value):
        return True
    return pattern.endswith(_ANY_REST) and _compiled(pattern.removesuffix(_ANY_REST)).match(value) is not None


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
