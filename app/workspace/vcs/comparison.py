"""The differences of a directory's files from a commit, untracked files included.

The comparison is git's own, with a copy of the index in which the untracked files stand as empty ones: nothing is written to the
repository. Renames are a deletion and an addition.
"""

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from app.project.discovery import branch
from app.project.location import Location
from app.project.sandbox.git import TOO_MUCH_OUTPUT, Git, GitResult
from app.project.snapshot.trees import PLAIN_DIFF, TreeChange, changes, nul_separated, patch_header, unquoted
from app.schema.errors import ServiceError, TooLarge
from app.schema.project import ChangedFile, VcsFileDiff, VcsFileStatus
from app.tools.text_file import json_text
from app.util.beneath import opened
from app.workspace.browse.allowed_paths import AllowedPaths

MAX_UNTRACKED = 5000
"""A checkout that does not ignore its dependencies has tens of thousands: the others are left out."""
MAX_PATCH_BYTES = 10_000_000
"""For all patches of an answer together."""
MAX_LISTED_BYTES = 64_000_000
"""For the names of changed files."""
WHOLE_FILE = 100_000_000
"""Lines of context that no file has."""
Mode = Literal["git", "branch"]
_OPTIONS = (
    *("--literal-pathspecs", "-c", "core.quotePath=false"),
    *("-c", f"core.bigFileThreshold={MAX_PATCH_BYTES}"),  # larger files are compared as binaries, of which nothing is shown
)
_DIFF = ("diff-index", *PLAIN_DIFF, "--no-relative", "--src-prefix=a/", "--dst-prefix=b/")
_NOT_ALL_REFRESHED = 1
_MAX_INDEX_BYTES = 1_000_000_000
_EMPTY_BLOB = {
    40: "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    64: "473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
}
"""By the length of a repository's object names."""
_CHUNK = b"diff --git "
_REMOTES = ("origin", "upstream")
_USUAL_BRANCHES = ("main", "master")


class GitFailed(ServiceError):
    """A command failed that works on every intact repository."""

    status = 500
    name = "GitError"

    def __init__(self, command: str, message: str) -> None:
        super().__init__(f"{command} failed: {message or 'without a message'}. See whether `git status` works in this directory.")


@dataclass(frozen=True)
class DefaultBranch:
    """The branch that others start from. `ref`: the remote's branch if a remote names it, else the local one."""

    name: str
    ref: str


@dataclass(frozen=True)
class _Comparison:
    """`base`: the commit or tree to compare with. `scope`: the directory, from the top of the checkout on, empty for all of it.
    `env` names the copied index. `is_whole`: no untracked file was left out."""

    git: Git
    base: str
    scope: Sequence[str]
    env: dict[str, str]
    is_whole: bool

    async def changes(self) -> list[TreeChange]:
        """One of each name: git lists a file in conflict twice. Raises TooLarge."""
        result = await self._diff(["--raw", "--numstat", "-z"], MAX_LISTED_BYTES)
        if result.code == TOO_MUCH_OUTPUT:
            raise TooLarge("More files differ than can be listed. Name a directory further down.")
        return list({change.path: change for change in changes(result.stdout)}.values())

    async def patches(self, *options: str) -> GitResult:
        """The patches; a result with the code TOO_MUCH_OUTPUT has only the first ones."""
        return await self._diff(["--patch", *options], 3 * MAX_PATCH_BYTES)

    async def _diff(self, options: Sequence[str], max_bytes: int) -> GitResult:
        args = [*_OPTIONS, *_DIFF, *options, self.base, "--", *self.scope]
        result = await self.git.run(*args, env=self.env, max_bytes=max_bytes)
        if not result.ok and result.code != TOO_MUCH_OUTPUT:
            raise GitFailed("git diff-index", result.stderr)
        return result


async def changed_files(location: Location) -> list[VcsFileStatus]:
    """The changes in the directory since HEAD, by path."""
    found = await _changes_since_head(location.git, _scope(location)) if location.git else []
    return [VcsFileStatus(**_facts(change)) for change in found]


def _facts(change: TreeChange) -> dict[str, Any]:
    counts = {"additions": change.additions or 0, "deletions": change.deletions or 0}
    return {"file": json_text(change.path), **counts, "status": change.status}


async def changed_in_checkout(allowed: AllowedPaths) -> list[ChangedFile]:
    """The changes in the whole checkout since HEAD, by paths relative to the directory. Of a link, which may lead anywhere, only
    that it changed. Empty for a damaged repository."""
    found: list[TreeChange] = []
    if allowed.location.git is not None:
        with suppress(GitFailed):
            found = await _changes_since_head(allowed.location.git, [])
    return await asyncio.to_thread(_seen_from, allowed, found)


def _seen_from(allowed: AllowedPaths, found: Sequence[TreeChange]) -> list[ChangedFile]:
    """Uses paths from the directory's real path, because git names the top of the checkout without symlinks."""
    full = [(f"{allowed.location.worktree}/{change.path}", change) for change in found]
    files = [
        ChangedFile(
            path=json_text(os.path.relpath(path, allowed.real_directory)),
            added=change.additions or 0,
            removed=change.deletions or 0,
            status=change.status,
        )
        for path, change in full
        if allowed.includes(path.rpartition("/")[0])  # the folder alone: a link is listed wherever it leads
    ]
    return sorted(files, key=lambda file: file.path)


async def _changes_since_head(git: Git, scope: Sequence[str]) -> list[TreeChange]:
    async with _comparing(git, scope, await _head(git)) as comparison:
        return await comparison.changes()


async def diffs(location: Location, mode: Mode, context: int = WHOLE_FILE) -> list[VcsFileDiff]:
    """Like `changed_files`, with a patch for each file; with `branch` since the directory's branch left the default branch."""
    git = location.git
    if git is None:
        return []
    base = await (_head(git) if mode == "git" else _fork_point(git))
    if base is None:
        return []
    async with _comparing(git, _scope(location), base) as comparison:
        shown = f"--unified={min(context, WHOLE_FILE)}"
        found, patches = await asyncio.gather(comparison.changes(), comparison.patches(shown))
    return await asyncio.to_thread(_with_patches, found, patches)


async def raw_patch(location: Location) -> bytes:
    """The changes since HEAD as a patch for `git apply`, binary files included. Raises TooLarge."""
    if location.git is None:
        return b""
    async with _comparing(location.git, _scope(location), await _head(location.git)) as comparison:
        result = await comparison.patches("--binary")
    if not comparison.is_whole:
        raise TooLarge(f"More than {MAX_UNTRACKED} files are untracked. Have git ignore them, or name a directory further down.")
    if len(result.stdout) > MAX_PATCH_BYTES:
        raise TooLarge(f"The patch of all changes has more than {MAX_PATCH_BYTES} bytes. Name a directory further down.")
    return result.stdout


async def _head(git: Git) -> str:
    """The commit, or the empty tree before the first one."""
    head = await git.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if head.ok:
        return head.text
    empty = await git.run("hash-object", "-t", "tree", "--stdin")
    if not empty.ok:
        raise GitFailed("git rev-parse", empty.stderr)
    return empty.text


async def _fork_point(git: Git) -> str | None:
    """None on the default branch itself, without one, and without a common commit."""
    default, current = await asyncio.gather(default_branch(git), branch(git))
    if default is None or default.name == current:
        return None
    result = await git.run("merge-base", "HEAD", default.ref)
    return result.text if result.ok else None


@asynccontextmanager
async def _comparing(git: Git, scope: Sequence[str], base: str) -> AsyncIterator[_Comparison]:
    with tempfile.TemporaryDirectory(prefix="opensession-index-") as folder:
        index = Path(folder) / "index"
        with_index, env = git.with_access_to(Path(folder)), {**await git.without_filters(), "GIT_INDEX_FILE": str(index)}
        await asyncio.to_thread(_copy_index, git, index)
        untracked = await _untracked_files(with_index, scope, env)
        await _add(with_index, untracked[:MAX_UNTRACKED], env, _EMPTY_BLOB[len(base)])
        yield _Comparison(with_index, base, scope, env, is_whole=len(untracked) <= MAX_UNTRACKED)


def _scope(location: Location) -> list[str]:
    return [location.path] if location.path else []


def _copy_index(git: Git, target: Path) -> None:
    """Keeps the index's time: git compares the content of files that changed then or later, for their times prove nothing. Does
    nothing without an index, as before the first add."""
    assert git.repository is not None
    try:
        source = opened(git.repository.git_dir / "index")
    except FileNotFoundError:
        return
    except OSError as error:
        raise GitFailed("git diff-index", f"the index cannot be read: {error.strerror}") from error
    with source, target.open("wb") as copy:
        found = os.fstat(source.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > _MAX_INDEX_BYTES:
            raise GitFailed("git diff-index", f"the index is no regular file of at most {_MAX_INDEX_BYTES} bytes")
        shutil.copyfileobj(source, copy)
    os.utime(target, ns=(found.st_atime_ns, found.st_mtime_ns))


async def _untracked_files(git: Git, scope: Sequence[str], env: Mapping[str, str]) -> list[str]:
    listed = await git.run(*_OPTIONS, "ls-files", "--others", "--exclude-standard", "-z", "--", *scope, env=env)
    return [name for name in listed.names if not name.endswith("/")]  # that is a repository of its own


async def _add(git: Git, names: Sequence[str], env: Mapping[str, str], empty: str) -> None:
    """Refreshes the copied index and adds the untracked files to it as empty ones."""
    lines = nul_separated(f"100644 {empty}\t{name}" for name in names)
    args = [*_OPTIONS, "update-index", "-q", "--unmerged", "--refresh", "--replace", "-z", "--index-info"]
    added = await git.run(*args, env=env, stdin=lines)
    if added.code not in (0, _NOT_ALL_REFRESHED):
        raise GitFailed("git update-index", added.stderr)


def _with_patches(differing: Sequence[TreeChange], patches: GitResult) -> list[VcsFileDiff]:
    texts, left = _by_name(patches), MAX_PATCH_BYTES
    found = []
    for change in differing:
        patch = texts.get(change.path, b"")
        is_shown = patch and len(patch) <= left
        left -= len(patch) if is_shown else 0
        text = patch.decode("utf-8", "surrogateescape") if is_shown else patch_header(change.path)  # as in OpenCode
        found.append(VcsFileDiff(**_facts(change), patch=json_text(text)))
    return found


def _by_name(patches: GitResult) -> dict[str, bytes]:
    """Splits before each `diff --git `, which only a header begins with: other lines begin with a space, a sign or a backslash.
    The last patch is left out if git was killed, as it is cut off."""
    chunks = (b"\n" + patches.stdout).split(b"\n" + _CHUNK)[1:]
    if patches.code == TOO_MUCH_OUTPUT:
        chunks = chunks[:-1]
    found: dict[str, bytes] = {}
    for chunk in chunks:
        name = _name(chunk.partition(b"\n")[0])
        found[name] = found.get(name, b"") + _CHUNK + chunk.removesuffix(b"\n") + b"\n"
    return found


def _name(header: bytes) -> str:
    """The name in `a/name b/name`: half of it, as with renames off both names are the same."""
    return os.fsdecode(unquoted(header[: len(header) // 2]).removeprefix(b"a/"))


async def default_branch(git: Git) -> DefaultBranch | None:
    """None if no remote names one and no usual name exists, as before the first commit."""
    return await _of_remote(git) or await _of_usual_name(git)


async def _of_remote(git: Git) -> DefaultBranch | None:
    heads = {remote: f"refs/remotes/{remote}/HEAD" for remote in _REMOTES}
    listed = (await git.run("for-each-ref", "--format=%(refname) %(symref)", *heads.values())).text
    targets = dict(line.partition(" ")[::2] for line in listed.splitlines())
    for remote, head in heads.items():
        prefix = f"refs/remotes/{remote}/"
        if targets.get(head, "").startswith(prefix):
            return DefaultBranch(targets[head].removeprefix(prefix), targets[head])
    return None


async def _of_usual_name(git: Git) -> DefaultBranch | None:
    configured = (await git.run("config", "--get", "init.defaultBranch")).text
    names = [name for name in (configured, *_USUAL_BRANCHES) if name]
    refs = {name: f"refs/heads/{name}" for name in names}
    present = (await git.run("for-each-ref", "--format=%(refname)", *refs.values())).text.splitlines()
    return next((DefaultBranch(name, ref) for name, ref in refs.items() if ref in present), None)
