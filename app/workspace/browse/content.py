"""The content of a directory and of a file, as clients show it: entries; text and its differences from HEAD, or bytes."""

import asyncio
import base64
import errno
import mimetypes
import os
import re
import stat
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from app.project.sandbox.git import Git
from app.project.snapshot.trees import PLAIN_DIFF, nul_separated, patch_header
from app.schema.errors import ServiceError
from app.schema.project import FileNode, FilePatch, PatchHunk, ViewedFile
from app.tools.builtin.read import SNIFFED_BYTES, attachment_mime, is_binary
from app.tools.text_file import json_text
from app.util.project_files import FolderEntry, is_directory
from app.workspace.browse.allowed_paths import AllowedPaths, FileForbidden

MAX_BYTES = 10 * 1024 * 1024
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO}
_WHOLE_FILE = "--unified=100000000"
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class FileTooLarge(ServiceError):
    status = 413
    name = "FileTooLargeError"


async def view_file(allowed: AllowedPaths, name: str) -> ViewedFile:
    """A path that is no file reads as empty text, as OpenCode's clients expect. Raises FileForbidden, FileTooLarge,
    BadRequest."""
    data = await asyncio.to_thread(read, allowed, name)
    if data is None:
        return ViewedFile(content="")
    mime = _mime_of_bytes(Path(name), data)
    if mime is not None:
        return ViewedFile(content=base64.b64encode(data).decode(), encoding="base64", mime_type=mime)
    hunks = await _hunks_since_head(allowed.location.git, allowed.real(name)) if allowed.location.git else []
    text = data.decode("utf-8-sig", "replace").strip()
    if not hunks:
        return ViewedFile(content=text)
    patch = FilePatch(old_file_name=name, new_file_name=name, old_header="HEAD", new_header="working tree", hunks=hunks)
    return ViewedFile(content=text, diff=_unified(name, hunks), patch=patch)


def read(allowed: AllowedPaths, name: str) -> bytes | None:
    """None for a path that is no regular file. Raises as view_file does."""
    try:
        with allowed.open(name) as descriptor:
            return _read_regular(descriptor, name)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        raise FileForbidden(f"{name} cannot be read: {error.strerror}", path=name) from error


def _read_regular(descriptor: int, name: str) -> bytes | None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return None
    # The file may grow meanwhile, and a file in /proc has no size at all.
    with open(descriptor, "rb", closefd=False) as file:
        data = file.read(MAX_BYTES + 1) if status.st_size <= MAX_BYTES else None
    if data is None or len(data) > MAX_BYTES:
        raise FileTooLarge(f"{name} is larger than {MAX_BYTES // 2**20} MiB and is not shown", path=name)
    return data


def _mime_of_bytes(path: Path, data: bytes) -> str | None:
    """None for text."""
    head = data[:SNIFFED_BYTES]
    by_name = mimetypes.guess_type(path.name)[0]
    if by_name is not None and by_name.startswith("image/"):
        return attachment_mime(path, head) or by_name
    if attachment_mime(path, head) or is_binary(path, head):
        return attachment_mime(path, head) or by_name or "application/octet-stream"
    return None


async def _hunks_since_head(git: Git, real: str) -> list[PatchHunk]:
    """One hunk that shows the whole file; none if nothing differs, git does not know the file or there is no commit yet.

    git is started where the request works and not where the file is: there it follows no link, even one that is put there now.
    """
    args = ["--literal-pathspecs", "diff", *PLAIN_DIFF, _WHOLE_FILE, "HEAD", "--", real]
    result = await git.run(*args, env=await git.without_filters())
    return parse_hunks(result.stdout.decode("utf-8", "replace")) if result.ok else []


def parse_hunks(diff: str) -> list[PatchHunk]:
    """The hunks of the diff of one file."""
    hunks: list[PatchHunk] = []
    for line in diff.removesuffix("\n").split("\n"):
        head = _HUNK.match(line)
        if head is not None:
            old_start, old_lines, new_start, new_lines = (int(number or 1) for number in head.groups())  # git leaves out a 1
            hunk = PatchHunk(old_start=old_start, old_lines=old_lines, new_start=new_start, new_lines=new_lines, lines=[])
            hunks.append(hunk)
        elif hunks:
            hunks[-1].lines.append(line)
    return hunks


def _unified(name: str, hunks: list[PatchHunk]) -> str:
    lines: list[str] = []
    for hunk in hunks:
        lines.append(f"@@ -{hunk.old_start},{hunk.old_lines} +{hunk.new_start},{hunk.new_lines} @@")
        lines += hunk.lines
    return patch_header(name, "HEAD", "working tree") + "\n".join(lines) + "\n"


MAX_LISTED = 50_000
_LEFT_OUT = {".git", ".DS_Store"}


async def list_directory(allowed: AllowedPaths, name: str) -> list[FileNode]:
    """At most MAX_LISTED, directories first, then `a`, `B`, `c`; empty if the directory does not exist. Raises FileForbidden,
    BadRequest."""
    entries = await asyncio.to_thread(_entries, allowed, name)
    ignored = await _ignored(allowed.location.git, allowed.real(name), entries) if entries and allowed.location.git else set()
    folder = allowed.full(name)
    return await asyncio.to_thread(lambda: [_node(allowed, folder, entry, entry.name in ignored) for entry in entries])


def _entries(allowed: AllowedPaths, name: str) -> list[FolderEntry]:
    try:
        with allowed.open(name) as folder, os.scandir(folder) as found:
            listed = islice((one for one in found if one.name not in _LEFT_OUT), MAX_LISTED)
            entries = [FolderEntry(one.name, _is_directory(allowed, name, one)) for one in listed]
    except PermissionError as error:
        raise FileForbidden(f"{name} cannot be read: {error.strerror}", path=name) from error
    except OSError:
        return []
    return sorted(entries, key=lambda entry: (not entry.is_directory, entry.name.casefold(), entry.name))


def _is_directory(allowed: AllowedPaths, folder: str, entry: os.DirEntry[str]) -> bool:
    """Follows a link only within the project."""
    if entry.is_symlink() and not allowed.includes(f"{allowed.full(folder)}/{entry.name}"):
        return False
    return is_directory(entry)


async def _ignored(git: Git, folder: str, entries: Sequence[FolderEntry]) -> set[str]:
    """`./` keeps git from reading a name as a pathspec."""
    asked = nul_separated(f"./{entry.name}" for entry in entries)
    result = await git.run("check-ignore", "-z", "--stdin", cwd=Path(folder), stdin=asked)
    return {name.removeprefix("./") for name in result.names}


def _node(allowed: AllowedPaths, folder: str, entry: FolderEntry, ignored: bool) -> FileNode:
    full = f"{folder.rstrip('/')}/{entry.name}"
    return FileNode(
        name=json_text(entry.name),
        path=json_text(allowed.relative(full)),
        absolute=json_text(full),
        type="directory" if entry.is_directory else "file",
        ignored=ignored,
    )
