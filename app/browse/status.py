"""Git status of the checkout: files that differ from HEAD."""

import asyncio
import os
from app.browse.content import FileTooLarge
from app.browse.content import read
from app.browse.reach import AllowedPaths
from app.browse.reach import FileForbidden
from app.sandbox.git import Git
from app.schema.project import ChangedFile
from app.tool import search
from app.tool.builtin.read import SNIFFED_BYTES
from app.tool.builtin.read import is_binary
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


MAX_UNTRACKED = 5000
"""A checkout that does not ignore its dependencies has tens of thousands."""
_DIFF = (
    "diff",
    "--raw",
    "--numstat",
    "-z",
    "--no-renames",
    "--no-ext-diff",
    "--no-textconv",
    "--ignore-submodules=dirty",
    "--submodule=short",
)
_UNTRACKED = ("ls-files", "--others", "--exclude-standard", "-z")

Status = Literal["added", "deleted", "modified"]


@dataclass(frozen=True, slots=True)
class GitChange:
    """`name` is from the top of the checkout; bytes that are not UTF-8 stand in it as lone surrogates."""

    name: str
    added: int
    removed: int
    status: Status


async def changed_files(reach: AllowedPaths) -> list[ChangedFile]:
    """By path, files that git does not know yet included; nothing outside git. The counts of a binary are 0."""
    if reach.git is None:
        return []
    diff, others = await asyncio.gather(_diff(reach.git), reach.git.run(*_UNTRACKED))
    return await asyncio.to_thread(_described, reach, diff, others.stdout)


async def _diff(git: Git) -> bytes:
    env = await git.without_filters()
    result = await git.run(*_DIFF, "HEAD", env=env)
    if not result.ok:  # before the first commit
        nothing = await git.run("hash-object", "-t", "tree", "--stdin")
        result = await git.run(*_DIFF, nothing.text, env=env)
    return result.stdout


def _described(reach: AllowedPaths, diff: bytes, others: bytes) -> list[ChangedFile]:
    changes = [*parse_changes(diff), *_untracked(reach, others)]
    files = [_seen_from(reach, change) for change in changes if _is_within(reach, change)]
    return sorted(files, key=lambda file: file.path)


def parse_changes(output: bytes) -> Iterator[GitChange]:
    """Read `--raw --numstat -z`: first `:modes ids letter` and the name of every file, then `added<tab>removed<tab>name`."""
    fields = [field for field in output.split(b"\0") if field]
    statuses = {name: _status(raw) for raw, name in zip(fields[::2], fields[1::2], strict=False) if raw.startswith(b":")}
    for line in fields[2 * len(statuses) :]:
        added, removed, name = line.split(b"\t", 2)
        yield GitChange(os.fsdecode(name), _count(added), _count(removed), statuses.get(name, "modified"))


def _status(raw: bytes) -> Status:
    match raw[-1:]:
        case b"A":
            return "added"
        case b"D":
            return "deleted"
        case _:
            return "modified"


def _count(number: bytes) -> int:
    return 0 if number == b"-" else int(number)


def _untracked(reach: AllowedPaths, output: bytes) -> Iterator[GitChange]:
    # A name that ends with `/` is a repository of its own.
    names = [os.fsdecode(name) for name in output.split(b"\0") if name and not name.endswith(b"/")]
    for name in names[:MAX_UNTRACKED]:
        yield GitChange(name, added=_lines(reach, f"{reach.worktree}/{name}"), removed=0, status="added")


def _lines(reach: AllowedPaths, path: str) -> int:
    """0 for what is not shown either: a binary, a huge file, a link that leads out of the project."""
    try:
        data = read(reach, path)
    except (FileForbidden, FileTooLarge):
        return 0
    if not data or is_binary(Path(path), data[:SNIFFED_BYTES]):
        return 0
    return data.count(b"\n") + (not data.endswith(b"\n"))


def _is_within(reach: AllowedPaths, change: GitChange) -> bool:
    """A link may lead anywhere: only that it changed is reported."""
    return reach.includes(f"{reach.worktree}/{change.name}".rpartition("/")[0])


def _seen_from(reach: AllowedPaths, change: GitChange) -> ChangedFile:
    """git spells the top of the checkout without symlinks."""
    path = os.path.relpath(f"{reach.worktree}/{change.name}", reach.real_directory)
    return ChangedFile(path=search.json_text(Path(path)), added=change.added, removed=change.removed, status=change.status)
