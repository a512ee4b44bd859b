"""Applies a patch to the files of a directory: all of it, or nothing.

Git applies the patch in a separate folder, to copies of the files that it names; the results are written to the directory as
a revert writes. So neither the repository's configuration nor a symbolic link has a part in it. Whether the patch may touch a
file is judged by the results, not by the patch's spelling.
"""

import asyncio
import os
import re
import stat
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from app.project.sandbox.git import WITHOUT_CONFIGURATION, Git
from app.project.sandbox.sandbox import Sandbox
from app.project.snapshot.restore import remove, write_file
from app.project.snapshot.trees import unquoted
from app.record.postgres import Locks
from app.schema.errors import ServiceError
from app.sessions.live import LiveSessions
from app.tools import text_file
from app.tools.base import ToolError
from app.tools.text_file import hold_all
from app.util.beneath import opened
from app.util.project_files import HeldDirectory
from app.workspace.browse.allowed_paths import AllowedPaths
from app.workspace.directories import require_idle

MAX_TOUCHED_BYTES = 64 * 1024 * 1024
"""For all files that a patch names, before it."""
MAX_NAMES = 20_000
"""Each is looked up and locked."""
MAX_FOLDERS = 200
"""In one another: Python makes, walks and removes them by recursion."""
_NAMES = re.compile(rb"^(?:--- |\+\+\+ |rename (?:from|to) |copy (?:from|to) )(.+?)(?:\t.*)?\r?$", re.MULTILINE)
_HEADS = re.compile(rb"^diff --git (.+?)\r?$", re.MULTILINE)
_LINE_END = re.compile(rb"\r?\n")


class PatchRefused(ServiceError):
    """Nothing was changed."""

    status = 400
    name = "VcsApplyError"

    def __init__(self, message: str, reason: Literal["non-git", "not-clean"] = "not-clean") -> None:
        super().__init__(text_file.json_text(message), reason=reason)


@dataclass(frozen=True)
class _FileState:
    data: bytes
    is_executable: bool


_FileStates = Mapping[str, _FileState]
"""By the files' names from the top of the checkout on."""


async def apply_patch(allowed: AllowedPaths, patch: str, live: LiveSessions, locks: Locks, sandbox: Sandbox) -> None:
    """Names in the patch are from the top of the checkout on. Raises PatchRefused, DirectoryBusy."""
    if not allowed.location.is_git:
        raise PatchRefused("The directory is in no git checkout: a patch is applied to one", "non-git")
    await require_idle(live, allowed.location.worktree)
    checkout, data = allowed.top, patch.encode("utf-8", "surrogateescape")
    names = await asyncio.to_thread(lambda: [name for name in _candidates(data) if _is_below(name, allowed)])
    async with hold_all(locks, (checkout.path / name for name in names)):
        before = await asyncio.to_thread(_read, checkout, names)
        after = await _apply_with_line_ends(sandbox, allowed.location.git, before, data)
        changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        _require_touchable(changed, names, allowed)
        await text_file.finish_in_thread(_write, checkout, changed, before, after)


async def _apply_with_line_ends(sandbox: Sandbox, git: Git | None, before: _FileStates, patch: bytes) -> _FileStates:
    """The files after the patch, with the line ends of the checkout. Raises PatchRefused."""
    try:
        return await _run_git_apply(sandbox, before, patch)
    except PatchRefused:
        converted = await _checked_out_with_crlf(git, before)
        if not converted:
            raise
    after = await _run_git_apply(sandbox, _with_line_ends(before, converted, b"\n"), patch)
    return _with_line_ends(after, converted, b"\r\n")


async def _checked_out_with_crlf(git: Git | None, names: Iterable[str]) -> set[str]:
    """The files whose line ends git converts, so that its diffs of them, and their patches, have others."""
    if git is None:
        return set()
    listed = (await git.run("--literal-pathspecs", "ls-files", "--eol", "-z", "--", *names)).names
    facts = {name: fact.split()[:2] for fact, _, name in (line.partition("\t") for line in listed)}
    return {name for name, ends in facts.items() if ends == ["i/lf", "w/crlf"]}


def _with_line_ends(files: _FileStates, names: Collection[str], end: bytes) -> dict[str, _FileState]:
    converted = {name: replace(files[name], data=_LINE_END.sub(end, files[name].data)) for name in names if name in files}
    return {**files, **converted}


def _candidates(patch: bytes) -> list[str]:
    """The names that the patch may be about, with and without a first folder such as `a/`: superfluous names do no harm. Raises
    PatchRefused for too many, or too deep ones."""
    heads = [half for head in _HEADS.findall(patch) for half in (head[: len(head) // 2], head[len(head) // 2 + 1 :])]
    spelt = [os.fsdecode(unquoted(name)) for name in [*_NAMES.findall(patch), *heads]]
    found = {name for spelling in spelt for name in (spelling, spelling.partition("/")[2]) if name}
    if len(found) > MAX_NAMES:
        raise PatchRefused(f"The patch names more than {MAX_NAMES} files, in all their spellings: split it")
    if any(name.count("/") > MAX_FOLDERS for name in found):
        raise PatchRefused(f"The patch names a file in more than {MAX_FOLDERS} folders")
    return sorted(found)


def _is_below(name: str, allowed: AllowedPaths) -> bool:
    """Whether a name from the top of the checkout on is a file of the request's directory, and nothing of git's own."""
    parts = name.split("/")
    if "\0" in name or any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        return False
    full = allowed.top.real / name
    return allowed.real_directory in full.parents and allowed.includes(str(full))


def _require_touchable(changed: Sequence[str], names: Collection[str], allowed: AllowedPaths) -> None:
    if not changed:
        raise PatchRefused("The patch changes no file")
    for name in changed:
        if not _is_below(name, allowed):
            raise PatchRefused(f"The patch names {name}, which is not in {allowed.location.directory}")
        if name not in names:
            raise PatchRefused(f"The patch spells {name} in a way that is not understood: make it with `git diff`")


def _read(checkout: HeldDirectory, names: Iterable[str]) -> dict[str, _FileState]:
    """The regular files among the names, reached through no link. Raises PatchRefused if they are too large."""
    found: dict[str, _FileState] = {}
    left = MAX_TOUCHED_BYTES
    for name in names:
        state = _state(checkout.path / name, checkout, left)
        if state is not None:
            found[name] = state
            left -= len(state.data)
    return found


def _state(path: Path, root: HeldDirectory, max_bytes: int = MAX_TOUCHED_BYTES) -> _FileState | None:
    try:
        file = opened(path, root)
    except OSError:
        return None
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return None
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise PatchRefused(f"The files that the patch names have more than {MAX_TOUCHED_BYTES} bytes: split it")
    return _FileState(data, bool(status.st_mode & stat.S_IXUSR))


async def _run_git_apply(sandbox: Sandbox, files: _FileStates, patch: bytes) -> dict[str, _FileState]:
    """The files after the patch. Raises PatchRefused."""
    with tempfile.TemporaryDirectory(prefix="opensession-patch-") as folder:
        await asyncio.to_thread(_put, Path(folder), files)
        env = {**WITHOUT_CONFIGURATION, "GIT_CEILING_DIRECTORIES": str(Path(folder).parent)}
        git = Git(sandbox, HeldDirectory(Path(folder)))
        result = await git.run("apply", "--whitespace=nowarn", env=env, stdin=patch)
        if not result.ok:
            raise PatchRefused(f"The patch can't be applied: {result.stderr}")
        return await asyncio.to_thread(lambda: dict(_results(Path(folder))))


def _put(folder: Path, files: _FileStates) -> None:
    for name, state in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(state.data)
        path.chmod(0o755 if state.is_executable else 0o644)


def _results(folder: Path) -> Iterator[tuple[str, _FileState]]:
    for place, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            path = Path(place, name)
            if path.is_symlink():
                raise PatchRefused(f"The patch makes {path.relative_to(folder)} a symbolic link: make it by hand")
            if path.is_file():
                state = _FileState(path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
                yield str(path.relative_to(folder)), state


def _write(checkout: HeldDirectory, changed: Sequence[str], before: _FileStates, after: _FileStates) -> None:
    """Raises PatchRefused after undoing what was written until then."""
    try:
        for name in changed:
            if _state(checkout.path / name, checkout) != before.get(name) or (
                name not in before and _exists(checkout.path / name, checkout)
            ):
                raise PatchRefused(f"{name} is there already, or was changed meanwhile")
        _write_states(checkout, changed, after)
    except ToolError as error:
        raise PatchRefused(f"The patch can't be applied: {error}{_undo(checkout, changed, before)}") from error


def _undo(checkout: HeldDirectory, changed: Sequence[str], before: _FileStates) -> str:
    """Returns a sentence if undoing fails, else an empty text."""
    try:
        _write_states(checkout, changed, before)
    except ToolError as error:
        return f" What was written could not be undone: {error}"
    return ""


def _write_states(checkout: HeldDirectory, names: Sequence[str], files: _FileStates) -> None:
    """Gives the named files their content in `files`. First removes those without one, as a folder may replace a file. Raises
    ToolError."""
    for name in sorted(names, key=lambda name: name in files):
        try:
            _write_state(checkout, name, files.get(name))
        except OSError as error:
            raise text_file.failure("write" if name in files else "delete", checkout.path / name, error) from error


def _write_state(checkout: HeldDirectory, name: str, state: _FileState | None) -> None:
    """Removes the file for None. Raises OSError."""
    if state is not None:
        write_file(checkout, name, state.data, executable=state.is_executable)
        return
    with suppress(NotADirectoryError):  # a file is where its folder would be: it is not there
        remove(checkout, name, checkout.real)


def _exists(path: Path, root: HeldDirectory) -> bool:
    """Raises ToolError for a path behind a link."""
    return text_file.stamp(path, root) is not None
