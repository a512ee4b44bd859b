"""Parses git's output about trees. With `-z`, names are unquoted and may contain any byte but NUL."""

import ast
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from app.project.snapshot.lock import SnapshotFailed
from app.schema.session import FileDiff

_BlobPair = tuple[str | None, str | None]
"""The ids of a file's blobs before and after."""

_INDEX = re.compile(rb"^index ([0-9a-f]+)\.\.([0-9a-f]+)", re.MULTILINE)
PLAIN_DIFF = (
    *("--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"),
    *("--submodule=short", "--ignore-submodules=dirty"),  # else git runs in submodules, by their configuration
)
"""The options of a diff of a checkout, whatever its configuration says."""
ChangeStatus = Literal["added", "deleted", "modified"]
_STATUSES: Mapping[str, ChangeStatus] = {"A": "added", "D": "deleted"}
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
    """`before` and `after`: blob ids, None if the file is absent or, in a checkout, if git does not store it. The counts are of
    lines, None for a binary file. `path` has lone surrogates for bytes that are not UTF-8. `hunks`: None if they are left out."""

    path: str
    status: ChangeStatus
    before: str | None
    after: str | None
    additions: int | None
    deletions: int | None
    hunks: bytes | None = b""

    @property
    def is_text(self) -> bool:
        return self.additions is not None

    def blobs(self) -> list[str]:
        return [blob for blob in (self.before, self.after) if blob is not None and self.is_text]

    def as_file_diff(self, contents: Mapping[str, bytes]) -> FileDiff:
        """Without texts unless `contents` has both."""
        has_texts = all(blob in contents for blob in self.blobs())
        patch = None if self.hunks is None else patch_header(self.path) + self.hunks.decode("utf-8", "replace")

        def text(blob: str | None) -> str:
            return contents[blob].decode("utf-8", "replace") if blob is not None and self.is_text and has_texts else ""

        return FileDiff(
            file=self.path,
            before=text(self.before),
            after=text(self.after),
            additions=self.additions or 0,
            deletions=self.deletions or 0,
            patch=patch if self.is_text else None,
            status=self.status,
        )


def patch_header(name: str, before: str = "", after: str = "") -> str:
    """The header of OpenCode's patches. `before` and `after`: what is compared."""
    return f"Index: {name}\n{'=' * 67}\n--- {name}\t{before}\n+++ {name}\t{after}\n"


def changes(listed: bytes, hunks: Mapping[_BlobPair, bytes] | None = None) -> list[TreeChange]:
    """Reads `--raw --numstat -z`: first `:modes ids letter` and the name of every file, then `added<tab>deleted<tab>name`.
    `hunks`: what `hunks_of` reads of the patches, if there are any."""
    fields = [field for field in listed.split(b"\0") if field]
    count = sum(field.startswith(b":") for field in fields[::2])
    raw = dict(zip(fields[1 : 2 * count : 2], fields[: 2 * count : 2], strict=True))
    return [_change(raw, line, hunks) for line in fields[2 * count :]]


def _change(raw: Mapping[bytes, bytes], numbered: bytes, hunks: Mapping[_BlobPair, bytes] | None) -> TreeChange:
    added, deleted, name = numbered.split(b"\t", 2)
    _, _, first, second, letter = raw[name].decode("ascii").split(" ")
    before, after = _blob(first), _blob(second)
    status = _STATUSES.get(letter, "modified")
    own = None if hunks is None else hunks.get((before, after), b"")
    return TreeChange(os.fsdecode(name), status, before, after, _count(added), _count(deleted), own)


def unquoted(name: bytes) -> bytes:
    """A name of a patch; git quotes unusual ones as C does, which Python reads. One that cannot be read stays as it is."""
    if name.startswith(b'"'):
        with suppress(SyntaxError, ValueError, AttributeError):
            return bytes(ast.literal_eval(name.decode("latin-1")).encode("latin-1"))
    return name


def hunks_of(patches: bytes) -> dict[_BlobPair, bytes]:
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
    """`<id> blob <size>\\n<content>\\n` or `<id> missing\\n`, one after another; the last one may be cut off."""
    position = 0
    while (end := output.find(b"\n", position)) >= 0:
        object_id, *facts = output[position:end].decode("ascii").split(" ")
        position = end + 1
        if len(facts) == 2:
            content = output[position : position + int(facts[1])]
            position += int(facts[1]) + 1
            if position <= len(output):
                yield object_id, content
