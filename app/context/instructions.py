"""Instruction files for the model: AGENTS.md and similar files, and the `instructions` of the configuration."""

import asyncio
import glob
import os
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from app.config.flags import Flags
from app.context.instruction_pages import InstructionPages
from app.schema.message import MessageWithParts
from app.schema.tool_state import Completed
from app.util import paths
from app.util.dataclass import dataclass
from app.workspace.instance import Instance

LOCAL_NAMES = ("AGENTS.md", "CLAUDE.md", "CONTEXT.md")
MAX_BYTES = 1_000_000
MAX_NEARBY_BYTES = 32_000
"""The limit for a file that is sent with a tool's output."""


@dataclass(frozen=True, slots=True)
class InstructionScope:
    """Where to look: from `directory` up to `worktree`."""

    directory: Path
    worktree: Path
    flags: Flags
    configured: Sequence[str] = ()
    hides: Callable[[Path | str], bool] = lambda path: False
    """What a project names or links to that is not its user's."""

    @classmethod
    def of(cls, instance: Instance) -> "InstructionScope":
        location = instance.location
        return cls(
            Path(location.directory), Path(location.worktree), instance.flags, instance.config.instructions, instance.hides
        )

    @property
    def upward(self) -> list[Path]:
        """The directory and its parents up to the worktree. Outside git only the directory, because its parents may be
        unrelated."""
        if self.worktree in (self.directory, Path("/")):
            return [self.directory]
        parents = [self.directory, *self.directory.parents]
        return parents[: parents.index(self.worktree) + 1] if self.worktree in parents else [self.directory]


async def blocks(scope: InstructionScope, pages: InstructionPages) -> list[str]:
    """One text for each non-empty file and page, in the order of discovery. The few files that are always looked for are read
    here, in less time than a change of thread takes; patterns may match any number."""
    files = await asyncio.to_thread(_read_files, scope) if scope.configured else _read_files(scope)
    fetched = await pages.texts(_urls(scope.configured))
    return [f"Instructions from: {file}\n{text}" for file, text in (*files, *fetched) if text.strip()]


async def nearby(path: Path, scope: InstructionScope, seen: set[str]) -> dict[str, str]:
    """Path → text of the instruction files between a file's directory and the scope's directory, without those in the system
    prompt and in `seen`. Adds them to `seen` at once, so that concurrent calls do not repeat them."""
    found = [file for file in await asyncio.to_thread(_nearby, path, scope) if str(file) not in seen]
    seen.update(map(str, found))
    texts = [await asyncio.to_thread(_read, file, MAX_NEARBY_BYTES) for file in found]
    return {str(file): text for file, text in zip(found, texts, strict=True) if text.strip()}


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
    in_system = set(_configured(scope)) if found else set()
    return [file for file in found if str(file) not in in_system and not scope.hides(file)]


def _first_of(folder: Path) -> Path | None:
    return next((Path(path) for path in _files((folder, name) for name in LOCAL_NAMES)), None)


def _read_files(scope: InstructionScope) -> list[tuple[str, str]]:
    local, configured = ([path for path in paths if not scope.hides(path)] for paths in (_local(scope), _configured(scope)))
    found = dict.fromkeys((*local, *_global(scope.flags), *configured))
    return [(path, _read(path)) for path in found]


def _read(path: str | Path, most: int = MAX_BYTES) -> str:
    try:
        with open(path, "rb") as file:  # noqa: PTH123  as in `_files`
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""


def _local(scope: InstructionScope) -> list[str]:
    """All files of the first name that exists anywhere, the nearest first."""
    if scope.flags.disable_project_config:
        return []
    folders = list(map(str, scope.upward))
    return next((found for name in LOCAL_NAMES if (found := _files((folder, name) for folder in folders))), [])


def _files(candidates: Iterable[tuple[str | Path, str]]) -> list[str]:
    """Those that exist, of folders and names. As texts: this is done before each step, and a Path costs as much as the look."""
    return [path for folder, name in candidates if os.path.isfile(path := os.path.join(folder, name))]  # noqa: PTH113, PTH118


def _global(flags: Flags) -> list[str]:
    candidates: list[tuple[str | Path, str]] = [(paths.opencode_config_dir(), "AGENTS.md")]
    if not flags.disable_claude_code_prompt:
        candidates.append((paths.home(), ".claude/CLAUDE.md"))
    if flags.config_dir:
        candidates.append((flags.config_dir, "AGENTS.md"))
    return _files(candidates)[:1]


def _configured(scope: InstructionScope) -> Iterable[str]:
    for pattern in scope.configured:
        if _is_url(pattern):
            continue
        for folder in _bases(pattern, scope):
            relative = pattern.removeprefix("~/").removeprefix("/")
            matches = glob.glob(relative, root_dir=folder, recursive=True, include_hidden=True)  # noqa: PTH207  hidden files count
            yield from sorted(_files((folder, match) for match in matches))


def _bases(pattern: str, scope: InstructionScope) -> list[Path]:
    """The directories that a pattern is relative to."""
    if pattern.startswith("~/"):
        return [paths.home()]
    if Path(pattern).is_absolute():
        return [Path("/")]
    if scope.flags.disable_project_config:
        return [Path(scope.flags.config_dir)] if scope.flags.config_dir else []
    return scope.upward


def _is_url(pattern: str) -> bool:
    return pattern.startswith(("http://", "https://"))


def _urls(configured: Iterable[str]) -> list[str]:
    return [pattern for pattern in configured if _is_url(pattern)]
