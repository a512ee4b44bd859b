"""The differences of a directory's files from a commit, untracked files included.

The comparison is git's own, with a copy of the index in which the untracked files stand as empty ones: nothing is written to the
repository. Renames are a deletion and an addition.
"""

import ast
import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from app.project.discovery import branch
from app.project.location import Location
from app.project.sandbox.git import TOO_MUCH_OUTPUT, Git, GitResult
from app.schema.errors import ServiceError, TooLarge
from app.schema.project import ChangedFile, VcsFileDiff, VcsFileStatus
from app.tools.text_file import json_text, opened
from app.workspace.browse.reach import AllowedPaths

MAX_UNTRACKED = 5000
"""A checkout that does not ignore its dependencies has tens of thousands."""
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
_DIFF = (
    *("diff-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative", "--submodule=short"),
    *("--ignore-submodules=dirty", "--src-prefix=a/", "--dst-prefix=b/"),
)
_NOT_ALL_REFRESHED = 1
_MAX_INDEX_BYTES = 1_000_000_000
_EMPTY_BLOB = {
    40: b"e69de29bb2d1d6434b8b29ae775ad8c2e48c5391",
    64: b"473a0f4c3be8a93681a267e3b1e9a7dcda1185436fe141f7749120a303721813",
}
"""By the length of a repository's object names."""
_CHUNK = b"diff --git "
_RULE = "=" * 67
_REMOTES = ("origin", "upstream")
_USUAL_BRANCHES = ("main", "master")
_Status = Literal["added", "deleted", "modified"]
_STATUSES: Mapping[bytes, _Status] = {b"A": "added", b"D": "deleted"}


class GitFailed(ServiceError):
    """A command failed that works on every intact repository."""

    status = 500
    name = "GitError"

    def __init__(self, command: str, told: str) -> None:
        super().__init__(f"{command} failed: {told or 'without a message'}. See whether `git status` works in this directory.")


@dataclass(frozen=True, slots=True)
class GitChange:
    """`name`: from the top of the checkout; bytes that are not UTF-8 stand in it as lone surrogates."""

    name: str
    added: int
    removed: int
    status: _Status

    @property
    def facts(self) -> dict[str, object]:
        return {"file": json_text(self.name), "additions": self.added, "deletions": self.removed, "status": self.status}


@dataclass(frozen=True)
class DefaultBranch:
    """The branch that others start from. `ref`: the remote's branch if a remote names it, else the local one."""

    name: str
    ref: str


@dataclass(frozen=True)
class _Comparison:
    """`base`: the commit or tree to compare with. `scope`: the directory, from the top of the checkout on, empty for all of it.
    `env` names the copied index."""

    git: Git
    base: str
    scope: Sequence[str]
    env: dict[str, str]

    async def changes(self) -> list[GitChange]:
        """One of each name: git lists a file in conflict twice. Raises TooLarge."""
        result = await self._diff(["--raw", "--numstat", "-z"], MAX_LISTED_BYTES)
        if result.code == TOO_MUCH_OUTPUT:
            raise TooLarge("More files differ than can be listed. Name a directory further down.")
        return list({change.name: change for change in parse_changes(result.stdout)}.values())

    async def patches(self, *options: str) -> GitResult:
        """With TOO_MUCH_OUTPUT only the first patches."""
        return await self._diff(["--patch", *options], 3 * MAX_PATCH_BYTES)

    async def _diff(self, options: Sequence[str], max_bytes: int) -> GitResult:
        args = [*_OPTIONS, *_DIFF, *options, self.base, "--", *self.scope]
        result = await self.git.run(*args, env=self.env, max_bytes=max_bytes)
        if not result.ok and result.code != TOO_MUCH_OUTPUT:
            raise GitFailed("git diff-index", result.stderr)
        return result


async def changed_files(location: Location) -> list[VcsFileStatus]:
    """The changes in the directory since HEAD, by path."""
    changes = await _changes_since_head(location.git, _scope(location)) if location.git else []
    return [VcsFileStatus(**change.facts) for change in changes]


async def changed_in_checkout(allowed: AllowedPaths) -> list[ChangedFile]:
    """The changes in the whole checkout since HEAD, by paths relative to the directory. Of a link, which may lead anywhere, only
    that it changed. Empty for a damaged repository."""
    changes: list[GitChange] = []
    if allowed.git is not None:
        with suppress(GitFailed):
            changes = await _changes_since_head(allowed.git, [])
    return await asyncio.to_thread(_seen_from, allowed, changes)


def _seen_from(allowed: AllowedPaths, changes: Sequence[GitChange]) -> list[ChangedFile]:
    """By paths from the directory's real path, because git names the top of the checkout without symlinks."""
    full = [(f"{allowed.worktree}/{change.name}", change) for change in changes]
    files = [
        ChangedFile(
            path=json_text(os.path.relpath(path, allowed.real_directory)),
            added=change.added,
            removed=change.removed,
            status=change.status,
        )
        for path, change in full
        if allowed.includes(path.rpartition("/")[0])  # the folder alone: a link is listed wherever it leads
    ]
    return sorted(files, key=lambda file: file.path)


async def _changes_since_head(git: Git, scope: Sequence[str]) -> list[GitChange]:
    async with _comparing(git, scope, _head) as comparison:
        return await comparison.changes() if comparison else []


async def diffs(location: Location, mode: Mode, context: int = WHOLE_FILE) -> list[VcsFileDiff]:
    """As `changed_files`, with a patch for each file; with `branch` since the directory's branch left the default branch."""
    git = location.git
    if git is None:
        return []
    async with _comparing(git, _scope(location), _head if mode == "git" else _fork_point) as comparison:
        if comparison is None:
            return []
        shown = f"--unified={min(context, WHOLE_FILE)}"
        changes, patches = await asyncio.gather(comparison.changes(), comparison.patches(shown))
    return await asyncio.to_thread(_with_patches, changes, patches)


async def raw_patch(location: Location) -> bytes:
    """The changes since HEAD as a patch for `git apply`, binary files included. Raises TooLarge."""
    if location.git is None:
        return b""
    async with _comparing(location.git, _scope(location), _head) as comparison:
        assert comparison is not None  # _head always finds a base
        result = await comparison.patches("--binary")
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
async def _comparing(
    git: Git, scope: Sequence[str], find_base: Callable[[Git], Awaitable[str | None]]
) -> AsyncIterator[_Comparison | None]:
    """None without a base."""
    with tempfile.TemporaryDirectory(prefix="opensession-index-") as folder:
        index = Path(folder) / "index"
        seeing_index, env = git.seeing(Path(folder)), {**await git.without_filters(), "GIT_INDEX_FILE": str(index)}
        await asyncio.to_thread(_copy_index, git, index)
        base, untracked = await asyncio.gather(find_base(git), _untracked_files(seeing_index, scope, env))
        if base is not None:
            await _add(seeing_index, untracked, env, _EMPTY_BLOB[len(base)])
        yield _Comparison(seeing_index, base, scope, env) if base is not None else None


def _scope(location: Location) -> list[str]:
    below = os.path.relpath(os.path.realpath(location.directory), os.path.realpath(location.worktree))
    return [] if below == os.curdir else [below]


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


async def _untracked_files(git: Git, scope: Sequence[str], env: Mapping[str, str]) -> list[bytes]:
    listed = await git.run(*_OPTIONS, "ls-files", "--others", "--exclude-standard", "-z", "--", *scope, env=env)
    # A name that ends with `/` is a repository of its own.
    return [name for name in listed.stdout.split(b"\0") if name and not name.endswith(b"/")][:MAX_UNTRACKED]


async def _add(git: Git, names: Sequence[bytes], env: Mapping[str, str], empty: bytes) -> None:
    """Refreshes the copied index and adds the untracked files to it as empty ones."""
    lines = b"".join(b"100644 %b\t%b\0" % (empty, name) for name in names)
    args = [*_OPTIONS, "update-index", "-q", "--unmerged", "--refresh", "--replace", "-z", "--index-info"]
    added = await git.run(*args, env=env, stdin=lines)
    if added.code not in (0, _NOT_ALL_REFRESHED):
        raise GitFailed("git update-index", added.stderr)


def _with_patches(changes: Sequence[GitChange], patches: GitResult) -> list[VcsFileDiff]:
    texts, left = _by_name(patches), MAX_PATCH_BYTES
    found = []
    for change in changes:
        patch = texts.get(change.name, b"")
        if not patch or len(patch) > left:
            patch = _header(change.name)
        else:
            left -= len(patch)
        found.append(VcsFileDiff(**change.facts, patch=json_text(patch.decode("utf-8", "surrogateescape"))))
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
    """The name in `a/name b/name`; git quotes unusual names as C does, which Python reads."""
    first = header[: len(header) // 2]  # half: with renames off both names are the same
    name = ast.literal_eval(first.decode("latin-1")).encode("latin-1") if first.startswith(b'"') else first
    return os.fsdecode(name.removeprefix(b"a/"))


def _header(name: str) -> bytes:
    """Replaces a patch that is not shown, as in OpenCode."""
    shown = os.fsencode(name)
    return b"Index: %b\n%b\n--- %b\t\n+++ %b\t\n" % (shown, _RULE.encode(), shown, shown)


def parse_changes(output: bytes) -> Iterator[GitChange]:
    """Reads `--raw --numstat -z`: first `:modes ids letter` and the name of every file, then `added<tab>removed<tab>name`."""
    fields = [field for field in output.split(b"\0") if field]
    letters = {name: raw[-1:] for raw, name in zip(fields[::2], fields[1::2], strict=False) if raw.startswith(b":")}
    for line in fields[2 * len(letters) :]:
        added, removed, name = line.split(b"\t", 2)
        status = _STATUSES.get(letters.get(name, b"M"), "modified")
        yield GitChange(os.fsdecode(name), _count(added), _count(removed), status)


def _count(number: bytes) -> int:
    return 0 if number == b"-" else int(number)


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
