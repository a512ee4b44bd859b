"""Patterns of files, as `glob` has them, found by the bounded reader."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from app.util.project_files import MAX_DEPTH, BoundedReader

_MAGIC = frozenset("*?[")


def matches(reader: BoundedReader, folder: str, pattern: str) -> list[str]:
    """Paths below `folder` that match, hidden ones too, sorted; `**` stands for any number of folders. Whether one is a file, and
    may be read, is for who reads it."""
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    return sorted(set(_matches(reader, folder.rstrip("/"), parts, 0)))


def _matches(reader: BoundedReader, folder: str, parts: Sequence[str], depth: int) -> Iterator[str]:
    if not parts:
        yield folder
    elif parts[0] == "**":
        yield from _any_depth(reader, folder, parts, depth)
    elif _MAGIC.isdisjoint(parts[0]):
        yield from _matches(reader, f"{folder}/{parts[0]}", parts[1:], depth)
    else:
        for entry in reader.entries(folder or "/"):
            if fnmatchcase(entry.name, parts[0]) and (entry.is_directory or len(parts) == 1):
                yield from _matches(reader, f"{folder}/{entry.name}", parts[1:], depth)


def _any_depth(reader: BoundedReader, folder: str, parts: Sequence[str], depth: int) -> Iterator[str]:
    if len(parts) > 1:
        yield from _matches(reader, folder, parts[1:], depth)
    for entry in reader.entries(folder or "/"):
        if entry.is_directory and depth < MAX_DEPTH:
            yield from _matches(reader, f"{folder}/{entry.name}", parts, depth + 1)
        elif len(parts) == 1:
            yield f"{folder}/{entry.name}"
