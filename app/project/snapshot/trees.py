"""Parses git's output about trees. With `-z`, names are unquoted and may contain any byte but NUL."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from app.project.snapshot.lock import SnapshotFailed
from app.schema.session import FileDiff

_BlobPair = tuple[str | None, str | None]
"""The ids of a file's blobs before and after."""

_INDEX = re.compile(rb"^index ([0-9a-f]+)\.\.([0-9a-f]+)", re.MULTILINE)
_RULE = "=" * 67
_EXECUTABLE = "100755"
LINK = "120000"
_TREE = "040000"


@dataclass(frozen=True)
class Entry:
    """A file or link in a tree."""

    mode: str
    blob: str

    @property
    def is_link(self) -> bool:
        return self.mode == LINK

    @property
    def is_executable(self) -> bool:
        return self.mode == _EXECUTABLE


@dataclass(frozen=True)
class TreeChange:
    """`before` and `after`: blob ids, None if the file is absent. The counts are of lines, None for a binary file."""

    path: str
    before: str | None
    after: str | None
    additions: int | None
    deletions: int | None
    hunks: bytes = b""

    @property
    def is_text(self) -> bool:
        return self.additions is not None

    def blobs(self) -> list[str]:
        return [blob for blob in (self.before, self.after) if blob is not None and self.is_text]

    def as_file_diff(self, contents: Mapping[str, bytes]) -> FileDiff:
        def text(blob: str | None) -> str:
            return contents[blob].decode("utf-8", "replace") if blob is not None and self.is_text else ""

        return FileDiff(
            file=self.path,
            before=text(self.before),
            after=text(self.after),
            additions=self.additions or 0,
            deletions=self.deletions or 0,
            patch=self._patch() if self.is_text else None,
            status="added" if self.before is None else "deleted" if self.after is None else "modified",
        )

    def _patch(self) -> str:
        """With OpenCode's header."""
        return f"Index: {self.path}\n{_RULE}\n--- {self.path}\t\n+++ {self.path}\t\n{self.hunks.decode('utf-8', 'replace')}"


def changes(output: bytes) -> list[TreeChange]:
    """Read `--raw --numstat --patch --full-index -z`: first `:modes ids status` and the name of every file, then
    `added<tab>deleted<tab>name` of each, then the patches."""
    listed, _, patches = output.partition(b"\0\0")
    fields, hunks = [field for field in listed.split(b"\0") if field], _hunks(patches)
    count = sum(field.startswith(b":") for field in fields[::2]) if fields else 0
    raw, numbered = fields[: 2 * count], fields[2 * count :]
    return [_change(raw[2 * i], line, hunks) for i, line in enumerate(numbered)]


def _change(raw: bytes, numbered: bytes, hunks: Mapping[_BlobPair, bytes]) -> TreeChange:
    _, _, first, second, _ = raw.decode("ascii").split(" ")
    added, deleted, name = numbered.split(b"\t", 2)
    before, after = _blob(first), _blob(second)
    path, lines = name.decode("utf-8", "surrogateescape"), hunks.get((before, after), b"")
    return TreeChange(path, before, after, _count(added), _count(deleted), lines)


def _hunks(patches: bytes) -> dict[_BlobPair, bytes]:
    """The text after each patch's header. No line of it begins as a header does."""
    found = {}
    for patch in (b"\n" + patches).split(b"\ndiff --git ")[1:]:
        header, start, rest = patch.partition(b"\n@@ ")
        if start and (ids := _INDEX.search(header)):
            found[_blob(ids[1].decode()), _blob(ids[2].decode())] = start[1:] + rest.removesuffix(b"\n") + b"\n"
    return found


def _blob(object_id: str) -> str | None:
    return object_id if object_id.strip("0") else None


def _count(number: bytes) -> int | None:
    return None if number == b"-" else int(number)


def checked(tree: str) -> str:
    """Raises SnapshotFailed unless `tree` is a tree's hash, so that git cannot read it as an option or another name."""
    if not re.fullmatch("[0-9a-f]{40}", tree):
        raise SnapshotFailed(f"{tree!r} names no snapshot")
    return tree


def is_utf8(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def nul_separated(items: Iterable[str]) -> bytes:
    return "".join(f"{item}\0" for item in items).encode("utf-8", "surrogateescape")


def tree_entries(output: bytes) -> Iterator[tuple[str, Entry]]:
    for line in filter(None, output.split(b"\0")):
        facts, name = line.split(b"\t", 1)
        mode, _, object_id = facts.decode("ascii").split(" ")
        if mode != _TREE:
            yield os.fsdecode(name), Entry(mode, object_id)


def batch(output: bytes) -> Iterator[tuple[str, bytes]]:
    """`<id> blob <size>\\n<content>\\n` or `<id> missing\\n`, one after another."""
    position = 0
    while position < len(output):
        end = output.index(b"\n", position)
        object_id, *facts = output[position:end].decode("ascii").split(" ")
        position = end + 1
        if len(facts) == 2:
            size = int(facts[1])
            yield object_id, output[position : position + size]
            position += size + 1
