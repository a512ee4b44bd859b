"""Instruction files for the model: AGENTS.md and similar files, and the `instructions` of the configuration."""

import asyncio
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from app.config.flags import Flags
from app.context.instruction_pages import InstructionPages
from app.schema.message import MessageWithParts
from app.schema.part import Completed
from app.util import environment
from app.util.project_files import (
    MAX_ALL_BYTES,
    MAX_BYTES,
    BoundedReader,
    ProjectBounds,
    Within,
    anywhere,
    matches,
    read_bytes,
    warn_once,
)
from app.workspace.instance import Instance

log = logging.getLogger(__name__)

LOCAL_NAMES = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")
MAX_NEARBY_CHARACTERS = 32_000
"""The limit for a file that is sent with a tool's output."""


@dataclass(frozen=True, slots=True)
class InstructionScope:
    """Where to look: from `directory` up to `worktree`. `may_read`: what a project names or links to is its user's."""

    directory: Path
    worktree: Path
    flags: Flags
    configured: Sequence[str] = ()
    bounds: ProjectBounds | None = None
    may_read: Within = anywhere

    @classmethod
    def of(cls, instance: Instance) -> "InstructionScope":
        directory, worktree = Path(instance.location.directory), Path(instance.location.worktree)
        configured, may_read = instance.config.instructions, instance.may_read or anywhere
        return cls(directory, worktree, instance.flags, configured, instance.bounds, may_read)

    @property
    def project(self) -> ProjectBounds:
        return self.bounds or ProjectBounds.of(self.directory, self.worktree)

    @property
    def upward(self) -> list[Path]:
        """The directory and its parents up to the worktree. Outside git only the directory, because its parents may be
        unrelated."""
        if self.worktree in (self.directory, Path("/")):
            return [self.directory]
        parents = [self.directory, *self.directory.parents]
        return parents[: parents.index(self.worktree) + 1] if self.worktree in parents else [self.directory]


async def blocks(scope: InstructionScope, pages: InstructionPages) -> list[str]:
    """One text for each non-empty file and page, in the order of discovery."""
    found = _with_warnings(await asyncio.to_thread(read_files, scope))
    fetched = await pages.texts(_urls(scope.configured))
    return [f"Instructions from: {file}\n{text}" for file, text in (*found.texts, *fetched) if text.strip()]


async def nearby(path: Path, scope: InstructionScope, seen: set[str]) -> dict[str, str]:
    """Path → text of the instruction files between a file's directory and the scope's directory, without those in the system
    prompt and in `seen`. Adds them to `seen` at once, so that concurrent calls do not repeat them."""
    found = [file for file in await asyncio.to_thread(_nearby, path, scope) if str(file) not in seen]
    seen.update(map(str, found))
    read = _with_warnings(await asyncio.to_thread(_texts, [(str(file), _of_project(scope)) for file in found]))
    return {path: text[:MAX_NEARBY_CHARACTERS] for path, text in read.texts if text.strip()}


def seen_in(history: Sequence[MessageWithParts]) -> set[str]:
    """The instruction files in the outputs of read calls that are still sent to the model."""
    reads = (part.state for message in history for part in message.parts if part.type == "tool" and part.tool == "read")
    sent = (state for state in reads if isinstance(state, Completed) and state.time.compacted is None)
    return {path for state in sent for path in state.metadata.get("loaded", ())}


def _nearby(path: Path, scope: InstructionScope) -> list[Path]:
    if scope.flags.disable_project_config or scope.directory not in path.parents:
        return []
    below = takewhile(lambda folder: folder != scope.directory, path.parents)
    found = [file for folder in below if (file := _first_of(folder)) is not None and file != path]
    in_system = {path for path, _ in _configured(scope, [])} if found else set()
    return [file for file in found if str(file) not in in_system]


def _first_of(folder: Path) -> Path | None:
    return next((Path(path) for path in _files((folder, name) for name in LOCAL_NAMES)), None)


@dataclass
class InstructionFiles:
    """(path, text) of each; `refused` are those that could not be read."""

    texts: list[tuple[str, str]] = field(default_factory=list)
    refused: list[OSError] = field(default_factory=list)


def read_files(scope: InstructionScope) -> InstructionFiles:
    refused: list[OSError] = []
    local = [(path, _of_project(scope)) for path in _local(scope)]
    own = [(path, anywhere) for path in _global(scope.flags)]
    read = _texts([*local, *own, *_configured(scope, refused)])
    return InstructionFiles(read.texts, [*refused, *read.refused])


def _texts(wanted: Iterable[tuple[str, Within]]) -> InstructionFiles:
    """Each path once, as far as all together are bounded."""
    found, left = InstructionFiles(), MAX_ALL_BYTES
    first: dict[str, Within] = {}
    for path, within in wanted:
        first.setdefault(path, within)
    for path, within in first.items():
        try:
            data = read_bytes(path, within, min(left, MAX_BYTES))
        except OSError as error:
            found.refused.append(error)
            continue
        if data is not None:
            left -= len(data)
            found.texts.append((path, data.decode("utf-8", "replace")))
    return found


def _with_warnings(found: InstructionFiles) -> InstructionFiles:
    for error in found.refused:
        warn_once(log, f"left out of the instructions: {error}")
    return found


def _of_project(scope: InstructionScope) -> Within:
    project, may_read = scope.project, scope.may_read
    return lambda real: project.hold(real) and may_read(real)


def _above_project(scope: InstructionScope) -> Within:
    project, may_read = scope.project, scope.may_read
    return lambda real: project.may_name(real) and may_read(real)


def _local(scope: InstructionScope) -> list[str]:
    """All files of the first name that exists anywhere, the nearest first."""
    if scope.flags.disable_project_config:
        return []
    folders = list(map(str, scope.upward))
    return next((found for name in LOCAL_NAMES if (found := _files((folder, name) for folder in folders))), [])


def _files(candidates: Iterable[tuple[str | Path, str]]) -> list[str]:
    """Those that exist, of folders and names. As texts: this is done before each step, and a Path costs as much as the look."""
    found = (os.path.join(folder, name) for folder, name in candidates)  # noqa: PTH118
    return [path for path in found if os.path.exists(path) and not os.path.isdir(path)]  # noqa: PTH110, PTH112


def _global(flags: Flags) -> list[str]:
    candidates: list[tuple[str | Path, str]] = [(environment.opencode_config_dir(), "AGENTS.md")]
    if not flags.disable_claude_code_prompt:
        candidates.append((environment.home(), ".claude/CLAUDE.md"))
    if flags.config_dir:
        candidates.append((flags.config_dir, "AGENTS.md"))
    return _files(candidates)[:1]


def _configured(scope: InstructionScope, refused: list[OSError]) -> Iterator[tuple[str, Within]]:
    """With where each may lie. A pattern that begins at the home directory or at `/` is the user's own, or was looked at when the
    configuration was read."""
    inside, above, own = map(BoundedReader, (_of_project(scope), _above_project(scope), scope.may_read))
    for pattern in scope.configured:
        if _is_url(pattern):
            continue
        is_own = pattern.startswith(("~/", "/")) or scope.flags.disable_project_config
        reader = own if is_own else above if ".." in pattern.split("/") else inside
        for folder in _bases(pattern, scope):
            relative = pattern.removeprefix("~/").removeprefix("/")
            found = _files(("/", path) for path in matches(reader, str(folder), relative))
            yield from ((path, reader.within) for path in found)
    refused += [*inside.refused, *above.refused, *own.refused]


def _bases(pattern: str, scope: InstructionScope) -> list[Path]:
    """The directories that a pattern is relative to."""
    if pattern.startswith("~/"):
        return [environment.home()]
    if Path(pattern).is_absolute():
        return [Path("/")]
    if scope.flags.disable_project_config:
        return [Path(scope.flags.config_dir)] if scope.flags.config_dir else []
    return scope.upward


def _is_url(pattern: str) -> bool:
    return pattern.startswith(("http://", "https://"))


def _urls(configured: Iterable[str]) -> list[str]:
    return [pattern for pattern in configured if _is_url(pattern)]
