"""What a client may see of the file system: the project's files, as far as the client may work there; and above those the folders
that lead down to them.

An open file is checked by where it really is, so that no link leads out that is put there between the check and the use.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from app.permissions.paths import Boundary
from app.project.location import Location
from app.schema.errors import BadRequest, ServiceError
from app.schema.project import FileNode
from app.util.project_files import HeldDirectory, path_of, resolved


def folders_towards(directory: str, roots: Iterable[str]) -> list[str]:
    """The folders from a directory down to the roots below it, the roots included, as `a/` and `a/b/`. All paths are resolved."""
    ways = [PurePosixPath(root).relative_to(directory) for root in roots]
    return sorted({f"{folder}/" for way in ways for folder in (way, *way.parents) if folder.name})


def folder_nodes(directory: str, folders: Iterable[str]) -> list[FileNode]:
    """The nodes of the folders that are directly in the directory."""
    names = [folder.rstrip("/") for folder in folders if folder.count("/") == 1]
    absolute = directory.rstrip("/") + "/"
    return [FileNode(name=name, path=name, absolute=absolute + name, type="directory", ignored=False) for name in names]


_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Opening a FIFO would wait for a writer."""


class FileForbidden(ServiceError):
    status = 403
    name = "FileForbiddenError"


class AllowedPaths:
    """`directories`: first the top of the checkout, last the directory itself. `allows(path)`: whether the client may work at a
    resolved path."""

    def __init__(self, location: Location, directories: Sequence[HeldDirectory], allows: Callable[[str], bool]) -> None:
        self.location = location
        self.top = directories[0]
        self.real_directory = directories[-1].real
        self._boundary = Boundary(Path(location.directory), Path(location.worktree), (one.real for one in directories))
        self._allows = allows

    def full(self, name: str) -> str:
        """The path that a client's name stands for, links not followed; OpenCode's clients call the directory itself `/`."""
        if "\0" in name:
            raise BadRequest("A path cannot contain a NUL character", ["path"], name)
        return os.path.normpath(os.path.join(self.location.directory, name if name.strip("/") else "."))  # noqa: PTH118

    def relative(self, full: str) -> str:
        return os.path.relpath(full, self.location.directory)

    def includes(self, path: str) -> bool:
        """Whether an absolute path, links followed, is allowed."""
        return self._boundary.contains(path) and self._allows(resolved(path))

    def real(self, name: str) -> str:
        """The resolved path. Raises FileForbidden if it leads out."""
        real = resolved(self.full(name))
        self._require(real, name)
        return real

    @contextmanager
    def open(self, name: str) -> Iterator[int]:
        """A descriptor to read from while the block runs. Raises FileForbidden, BadRequest, OSError."""
        descriptor = os.open(self.real(name), _FLAGS)
        try:
            self._require(path_of(descriptor), name)
            yield descriptor
        finally:
            os.close(descriptor)

    def _require(self, real: str, name: str) -> None:
        if not real or not self.includes(real):
            raise FileForbidden(f"{name} is outside the project", path=name)
