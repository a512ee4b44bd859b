"""The folders that lead down to the directories that clients may work in, so that one can be chosen step by step."""

from collections.abc import Iterable
from pathlib import PurePosixPath

from app.schema.project import FileNode


def folders_towards(directory: str, roots: Iterable[str]) -> list[str]:
    """The folders from a directory down to the roots below it, the roots included, as `a/` and `a/b/`. All paths are without
    symlinks."""
    ways = [PurePosixPath(root).relative_to(directory) for root in roots]
    return sorted({f"{folder}/" for way in ways for folder in (way, *way.parents) if folder.name})


def folder_nodes(directory: str, folders: Iterable[str]) -> list[FileNode]:
    """Those that stand in the directory itself."""
    names = [folder.rstrip("/") for folder in folders if folder.count("/") == 1]
    absolute = directory.rstrip("/") + "/"
    return [FileNode(name=name, path=name, absolute=absolute + name, type="directory", ignored=False) for name in names]
