"""The patterns of permission rules: `*` matches any run of characters, `?` matches one character, all else matches itself."""

from collections import defaultdict

_ANY_REST = " *"


def matches(pattern: str, value: str) -> bool:
    """Matches the whole value, case-sensitive. A pattern that ends in ` *` also matches the value without that ending."""
    return _matches(pattern, value) or (pattern.endswith(_ANY_REST) and _matches(pattern.removesuffix(_ANY_REST), value))


def _matches(pattern: str, value: str) -> bool:
    """Each text between two `*` is taken where it is found first. Rules and values may be hostile: without a `?` this takes no
    longer than to read both."""
    start, *middle = pattern.split("*")
    if not middle:
        return len(start) == len(value) and _begins(value, start, 0)
    end = middle.pop()
    at, until = len(start), len(value) - len(end)
    if at > until or not _begins(value, start, 0) or not _begins(value, end, until):
        return False
    for text in middle:
        found = _find(text, value, at, until)
        if found < 0:
            return False
        at = found + len(text)
    return True


def _begins(value: str, text: str, at: int) -> bool:
    return value.startswith(text, at) or ("?" in text and all(char in ("?", value[i]) for i, char in enumerate(text, at)))


def _find(text: str, value: str, at: int, until: int) -> int:
    """Like `str.find`. With a `?` by the bitap algorithm: bit n of `ended` says whether n + 1 characters of the text end here."""
    if "?" not in text:
        return value.find(text, at, until)
    if len(text) > until - at:
        return -1
    wildcards = int("".join("01"[char == "?"] for char in reversed(text)), 2)
    fits = defaultdict[str, int](lambda: wildcards)
    for i, char in enumerate(text):
        fits[char] |= 1 << i
    whole, ended = 1 << (len(text) - 1), 0
    for i in range(at, until):
        ended = (ended << 1 | 1) & fits.get(value[i], wildcards)
        if ended & whole:
            return i + 1 - len(text)
    return -1


def covers(wide: str, narrow: str) -> bool:
    """True if `wide` certainly matches every value that `narrow` matches. False if that is not certain."""
    if wide == narrow or (wide and not wide.strip("*")):
        return True
    if "?" in wide and "*" in narrow:
        return False
    return matches(wide, narrow) and (not narrow.endswith(_ANY_REST) or matches(wide, narrow.removesuffix(_ANY_REST)))


def disjoint(one: str, other: str) -> bool:
    """True if certainly no value matches both patterns. False if that is not certain."""
    if is_plain(one) or is_plain(other):
        return not (matches(other, one) if is_plain(one) else matches(one, other))
    has_open_end = one.endswith(_ANY_REST) or other.endswith(_ANY_REST)
    return _starts_clash(one, other) or (not has_open_end and _starts_clash(one[::-1], other[::-1]))


def is_plain(pattern: str) -> bool:
    return "*" not in pattern and "?" not in pattern


def _starts_clash(one: str, other: str) -> bool:
    first, second = _literal_start(one), _literal_start(other)
    return not (first.startswith(second) or second.startswith(first))


def _literal_start(pattern: str) -> str:
    return pattern.removesuffix(_ANY_REST).partition("*")[0].partition("?")[0]
