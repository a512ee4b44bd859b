"""Parses the output of `git diff-tree`. With `-z`, names are unquoted and may contain any byte but NUL."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.schema.session import FileDiff


@dataclass(frozen=True)
class TreeChange:
    """`before` and `after` are blob ids, None where the file is absent; the counts, of lines, are None for a binary file."""

    path: str
    before: str | None
    after: str | None
    additions: int | None
    deletions: int | None

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
        )


def names(output: bytes) -> list[str]:
    return [name.decode("utf-8", "surrogateescape") for name in output.split(b"\0") if name]


def changes(output: bytes) -> list[TreeChange]:
    """Read `--raw --numstat`: first `:modes ids status` and the name of every file, then `added<tab>deleted<tab>name` of each."""
    fields = [field for field in output.split(b"\0") if field]
    count = sum(field.startswith(b":") for field in fields[::2]) if fields else 0
    raw, numbered = fields[: 2 * count], fields[2 * count :]
    return [_change(raw[2 * i], line) for i, line in enumerate(numbered)]


def _change(raw: bytes, numbered: bytes) -> TreeChange:
    _, _, before, after, _ = raw.decode("ascii").split(" ")
    added, deleted, name = numbered.split(b"\t", 2)
    return TreeChange(name.decode("utf-8", "surrogateescape"), _blob(before), _blob(after), _count(added), _count(deleted))


def _blob(object_id: str) -> str | None:
    return object_id if object_id.strip("0") else None


def _count(number: bytes) -> int | None:
    return None if number == b"-" else int(number)
