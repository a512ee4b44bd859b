"""The entries of one directory."""

import asyncio
import os
from app.browse.reach import AllowedPaths
from app.browse.reach import FileForbidden
from app.sandbox.git import Git
from app.schema.project import FileNode
from app.tool import search
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


_LEFT_OUT = {".git", ".DS_Store"}


@dataclass(frozen=True, slots=True)
class _DirectoryEntry:
    name: str
    is_directory: bool


async def list_directory(reach: AllowedPaths, name: str) -> list[FileNode]:
    """Directories first, then by name; empty if the directory does not exist. Raises FileForbidden, BadRequest."""
    entries = await asyncio.to_thread(_entries, reach, name)
    ignored = await _ignored(reach.git, reach.real(name), entries) if entries and reach.git else set()
    folder = reach.full(name)
    return [_node(reach, folder, entry, entry.name in ignored) for entry in entries]


def _entries(reach: AllowedPaths, name: str) -> list[_DirectoryEntry]:
    try:
        with reach.open(name) as folder, os.scandir(folder) as found:
            entries = [_DirectoryEntry(one.name, _is_directory(reach, name, one)) for one in found if one.name not in _LEFT_OUT]
    except PermissionError as error:
        raise FileForbidden(f"{name} cannot be read: {error.strerror}", path=name) from error
    except OSError:
        return []
    return sorted(entries, key=lambda entry: (not entry.is_directory, entry.name))


def _is_directory(reach: AllowedPaths, folder: str, entry: os.DirEntry[str]) -> bool:
    """Follows a link only within the project."""
    if not entry.is_symlink():
        return entry.is_dir()
    return reach.includes(f"{reach.full(folder)}/{entry.name}") and entry.is_dir()


async def _ignored(git: Git, folder: str, entries: Sequence[_DirectoryEntry]) -> set[str]:
    """`./` keeps git from reading a name as a pathspec."""
    asked = b"\0".join(b"./" + os.fsencode(entry.name) for entry in entries)
    result = await git.run("check-ignore", "-z", "--stdin", cwd=Path(folder), stdin=asked)
    return {os.fsdecode(name).removeprefix("./") for name in result.stdout.split(b"\0") if name}


def _node(reach: AllowedPaths, folder: str, entry: _DirectoryEntry, ignored: bool) -> FileNode:
    full = f"{folder.rstrip('/')}/{entry.name}"
    return FileNode(
        name=search.json_text(Path(entry.name)),
        path=search.json_text(Path(reach.relative(full))),
        absolute=search.json_text(Path(full)),
        type="directory" if entry.is_directory else "file",
        ignored=ignored,
    )
