"""JSON with comments and trailing commas: parsed, searched for where a value stands, and edited with everything else unchanged.

Comments and trailing commas are blanked in place, so every offset and line of the strict JSON is one of the original.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

STRING = r'"(?:[^"\\\n]|\\.?)*(?:"|(?=\n)|\Z)'
COMMENT = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
"""Both match a comment or string without an end, too: otherwise a megabyte of such beginnings would take minutes."""
_STRING_OR_COMMENT = re.compile(rf"{STRING}|{COMMENT}", re.S)
_STRING_OR_TRAILING_COMMA = re.compile(rf"{STRING}|,(?=\s*[}}\]])", re.S)
_NOT_NEWLINE = re.compile(r"[^\n]")
_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()


class Member(NamedTuple):
    """One entry of an object or array; the value is `text[start:end]`, and the entry with its key begins at `begin`."""

    key: str | int
    begin: int
    start: int
    end: int


def _blank(match: re.Match[str]) -> str:
    found = match.group()
    return found if found.startswith('"') else _NOT_NEWLINE.sub(" ", found)


def without_comments(text: str) -> str:
    return _STRING_OR_COMMENT.sub(_blank, text)


def strict(text: str) -> str:
    """The same text as strict JSON, with all offsets unchanged."""
    return _STRING_OR_TRAILING_COMMA.sub(_blank, without_comments(text))


def loads(text: str) -> Any:
    """Raises json.JSONDecodeError, whose `lineno` is the original's. An empty text is an empty object."""
    blanked = strict(text)
    return json.loads(blanked) if blanked.strip() else {}


def line_finder(text: str) -> Callable[[Sequence[str | int]], int | None]:
    """Finds the line, from 1, on which the deepest existing part of a path begins; None if no part exists. However many paths are
    asked for, each object is read once."""
    blanked = strict(text)
    by_key = cache(lambda start: {member.key: member for member in _members(blanked, start)})

    def line_of(path: Sequence[str | int]) -> int | None:
        start, found = _skip_space(blanked, 0), None
        for key in path:
            inner = by_key(start).get(key)
            if inner is None:
                break
            start, found = inner.start, inner
        return None if found is None else text.count("\n", 0, found.begin) + 1

    return line_of


def merge(text: str, update: Mapping[str, Any]) -> str:
    """`text` with `update` merged into its object, deep. Values that are equal already, comments and layout stay."""
    if not strict(text).strip():
        return json.dumps(update, indent=2, ensure_ascii=False) + "\n"
    for key, value in update.items():
        text = _set(text, [key], value)
    return text


def _set(text: str, path: list[str], value: Any) -> str:
    blanked = strict(text)
    found = _find(blanked, path)
    if found is None:
        return _insert(text, blanked, path, value)
    present = json.loads(blanked[found.start : found.end])
    if present == value:
        return text
    if isinstance(present, dict) and isinstance(value, Mapping):
        for key, inner in value.items():
            text = _set(text, [*path, key], inner)
        return text
    return text[: found.start] + _dump(value, _indent_at(text, found.begin)) + text[found.end :]


def _insert(text: str, blanked: str, path: list[str], value: Any) -> str:
    """A new last member, on a line of its own, of the object at `path[:-1]`, which exists."""
    parent = _find(blanked, path[:-1])
    start, end = (parent.start, parent.end) if parent else _root(blanked)
    members = list(_members(blanked, start))
    outer = _indent_at(text, start)
    indent = _indent_at(text, members[-1].begin) if members and "\n" in text[start:end] else outer + "  "
    entry = f"{json.dumps(path[-1], ensure_ascii=False)}: {_dump(value, indent)}"
    inner_end = start + 1 + len(text[start + 1 : end - 1].rstrip())
    closing = text[inner_end : end - 1] if "\n" in text[inner_end : end - 1] else "\n" + outer
    comma = members[-1].end if members else inner_end
    needs_comma = bool(members) and "," not in without_comments(text)[comma : end - 1]
    return f"{text[:comma]}{',' * needs_comma}{text[comma:inner_end]}\n{indent}{entry}{closing}{text[end - 1 :]}"


def _dump(value: Any, indent: str) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False).replace("\n", "\n" + indent)


def _indent_at(text: str, offset: int) -> str:
    line = text[text.rfind("\n", 0, offset) + 1 : offset]
    return line[: len(line) - len(line.lstrip())]


def _root(blanked: str) -> tuple[int, int]:
    start = _skip_space(blanked, 0)
    return start, _DECODER.raw_decode(blanked, start)[1]


def _find(blanked: str, path: Sequence[str | int]) -> Member | None:
    """None for an empty path and without such a member."""
    found: Member | None = None
    start = _skip_space(blanked, 0)
    for key in path:
        # The last of equal keys is the one that JSON readers take.
        inner = [member for member in _members(blanked, start) if member.key == key]
        if not inner:
            return None
        found = inner[-1]
        start = found.start
    return found


def _members(blanked: str, start: int) -> Iterator[Member]:
    """The entries of the object or array that begins at `start`; none for any other value."""
    kind = blanked[start : start + 1]
    if kind not in ("{", "["):
        return
    offset = _skip_space(blanked, start + 1)
    index = 0
    while blanked[offset] not in "}]":
        begin, key = offset, index
        if kind == "{":
            name, offset = _DECODER.raw_decode(blanked, offset)
            offset = _skip_space(blanked, _skip_space(blanked, offset) + 1)
        _, end = _DECODER.raw_decode(blanked, offset)
        yield Member(name if kind == "{" else key, begin, offset, end)
        offset = _skip_space(blanked, end)
        offset = _skip_space(blanked, offset + 1) if blanked[offset] == "," else offset
        index += 1


def _skip_space(text: str, offset: int) -> int:
    match = _SPACE.match(text, offset)
    return match.end() if match else offset
