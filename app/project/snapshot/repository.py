"""The git repository of the snapshots, in the data directory. Its work tree is a checkout, or a directory without git.

It has no commits. Its index follows the checkout, and a snapshot is a tree written from the index. A ref for each tree
(`refs/keep/<tree>`, whose mtime is the time of the last use) protects it from `git gc`.
"""

import asyncio
import hashlib
import logging
import os
import re
import tempfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path, PurePath

from app.project.sandbox.git import TIMED_OUT, TOO_MUCH_OUTPUT, WITHOUT_CONFIGURATION, Git, GitResult
from app.project.snapshot.lock import SnapshotFailed
from app.project.snapshot.trees import (
    LINK,
    Entry,
    TreeChange,
    batch,
    changes,
    checked,
    hunks_of,
    is_utf8,
    nul_separated,
    tree_entries,
)
from app.util import clock
from app.util.project_files import HeldDirectory, is_below, read_bytes, warn_once

log = logging.getLogger(__name__)

KEPT_SECONDS = 7 * 24 * 3600
_KEEP_AGAIN_SECONDS = 3600
_TIMEOUT_SECONDS = 60
_LONG_TIMEOUT_SECONDS = 600
_SMALL_TIMEOUT_SECONDS = 15
"""For listing the few files of a directory without git: git waits for a FIFO that it reads rules from."""
MAX_PATCH_BYTES = 8 * 1024 * 1024
MAX_TEXT_BYTES = 16 * 1024 * 1024
"""Of the patches and of the texts of a diff, which is stored with its session, and is in events."""
# Stores bytes unchanged: no line endings, filters (LFS), keywords or encodings. This file overrides every .gitattributes.
_ATTRIBUTES = "* -text !eol !filter !ident !working-tree-encoding\n"
_CONFIG = {
    "core.autocrlf": "false",
    "core.attributesFile": "/dev/null",
    "core.symlinks": "true",
    "core.quotePath": "false",
    "core.filemode": "true",
    "core.ignorecase": "false",
    "core.fsync": "none",
    "core.looseCompression": "1",
    "gc.packRefs": "false",
    "gc.cruftPacks": "false",
    "gc.writeCommitGraph": "false",
}
_INIT_ENVIRONMENT = {**WITHOUT_CONFIGURATION, "GIT_DEFAULT_HASH": "sha1", "GIT_DEFAULT_REF_FORMAT": "files"}
_NOTHING_IGNORED = 1
"""An exit status of `git check-ignore`."""
_NO_BLOB = "0" * 40
_IGNORE_FILE = ".ignore"
"""Rules as in `.gitignore`, for search tools."""

CHANGED = ("-o", "-m")
"""Paths that differ from the index: new, modified, deleted or of another type."""
ALL_FILES = ("-c", "-o")
"""The files in the index and those that a snapshot would add."""

Signature = tuple[int, int, int]


class Repository:
    """Git's plumbing, one method per command. Paths are relative to the worktree. Every failure raises SnapshotFailed."""

    def __init__(
        self, git_dir: Path, project: Git, worktree: Path, scope: str, exclude: Iterable[str], excluded_names: Iterable[str] = ()
    ) -> None:
        """`project`: git in the checkout, with its own repository; without one for a directory without git. `scope`: the covered
        directory below the worktree, "" for all of it. `exclude`: directories to exclude; `excluded_names`: all so named."""
        self.git_dir = git_dir
        self._project = project
        self._has_project = project.repository is not None
        self._has_ignore_files = False
        self._worktree = worktree
        self._pathspec = ["--", scope] if scope else []
        self._exclude = [*(f"{name}/" for name in excluded_names), *map(_ignore_line, exclude)]
        self._options = _options(_CONFIG)
        self._project_exclude: Path | None = None
        # Git's own place for the user's ignore rules, unless the configuration names another file.
        self._ignore_file = Path(os.environ.get("XDG_CONFIG_HOME") or "~/.config").expanduser() / "git" / "ignore"
        self._unreadable: list[str] = []
        """Nested repositories at which git ends."""
        self.rule_files: list[str] = []
        """The files with ignore rules outside of the worktree, missing ones too; known after `prepare`."""
        self._kept: dict[str, float] = {}
        self._noted: tuple[str, set[str]] | None = None
        self._environment = {
            "GIT_DIR": str(git_dir),
            "GIT_WORK_TREE": str(worktree),
            **WITHOUT_CONFIGURATION,
            "GIT_LITERAL_PATHSPECS": "1",
        }

    # Set-up; the caller holds the lock.

    async def prepare(self) -> None:
        """Creates the repository if it is missing."""
        (self.git_dir / "index.lock").unlink(missing_ok=True)
        if not (self.git_dir / "info" / "attributes").exists():
            await self._create()
        if not self.rule_files:
            await self._read_configuration()
            self.rule_files = [str(path) for path in (self._project_exclude, self._ignore_file) if path is not None]
        await asyncio.to_thread(self._write_rules)

    async def _create(self) -> None:
        self._kept.clear()
        self._noted = None
        self.git_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        for left in ("HEAD.lock", "config.lock"):  # of a git that was killed here
            (self.git_dir / left).unlink(missing_ok=True)
        made = replace(self._project, directory=HeldDirectory(self.git_dir), also=(), repository=None)
        result = await made.run("init", "--quiet", "--bare", "--template=", self.git_dir, env=_INIT_ENVIRONMENT)
        if not result.ok:
            raise SnapshotFailed(f"git init: {result.stderr}")
        (self.git_dir / "info").mkdir(exist_ok=True)
        (self.git_dir / "refs" / "keep").mkdir(exist_ok=True)
        # Written last and atomically: this file marks a complete repository.
        attributes = self.git_dir / "info" / "attributes.new"
        attributes.write_text(_ATTRIBUTES)
        attributes.replace(self.git_dir / "info" / "attributes")

    async def _read_configuration(self) -> None:
        """Reads where there are ignore rules beside .gitignore files. In a directory without git a `.git` is not read: git is
        given this repository alone."""
        git, env = (self._project, None) if self._has_project else (self._own_git(), {"GIT_DIR": str(self.git_dir)})
        ignore_file = await git.run("config", "--path", "--get", "core.excludesFile", env=env)
        if ignore_file.ok:
            self._ignore_file = self._worktree / ignore_file.text
        if self._has_project:
            exclude = await git.run("rev-parse", "--git-path", "info/exclude")
            self._project_exclude = self._worktree / (exclude.text if exclude.ok else ".git/info/exclude")
        elif self.index_signature():
            args = ["ls-files", "-z", "-c", "--", f":(glob)**/{_IGNORE_FILE}"]
            self._has_ignore_files = bool((await self._git(args, env={"GIT_LITERAL_PATHSPECS": "0"})).stdout)

    def _write_rules(self) -> None:
        """Copies the rules, because git would wait for a FIFO that the project's configuration names."""
        is_there = os.path.isfile(self._ignore_file)  # noqa: PTH113  a Path raises for what cannot be asked for
        named = {"core.excludesFile": str(self._ignore_file)} if is_there else {}
        self._options = _options({**_CONFIG, **named})
        self._unreadable = [path for path in self._unreadable if os.path.lexists(self._worktree / path / ".git")]
        theirs = self._ignored_by_project(self._project_exclude) if self._project_exclude else ""
        lines = [*theirs.splitlines(), *self._exclude, *map(_ignore_line, self._unreadable)]
        (self.git_dir / "info" / "exclude").write_text("".join(f"{line}\n" for line in lines), errors="surrogateescape")

    def leave_out_repositories(self) -> None:
        """From the next `prepare` on git does not look into nested repositories, which belong to no snapshot. Git fails at one
        whose `commondir` leads nowhere."""
        self._unreadable, pending = [], [str(self._worktree.joinpath(*self._pathspec[1:]))]
        while pending:  # `os.walk` of Python 3.11 ends at a thousand folders in one another
            folder, inner = pending.pop(), list[str]()
            with suppress(OSError), os.scandir(folder) as found:
                inner = [entry.path for entry in found if entry.is_dir(follow_symlinks=False)]
            if os.path.lexists(f"{folder}/.git") and folder != str(self._worktree):
                self._unreadable.append(os.path.relpath(folder, self._worktree))
            else:
                pending += inner

    def _ignored_by_project(self, exclude: Path) -> str:
        tops = [os.path.realpath(place) for place in (self._worktree, exclude.parent.parent)]
        try:
            found = read_bytes(exclude, lambda real: any(is_below(real, top) for top in tops))
        except OSError as error:
            warn_once(log, f"left out of what snapshots ignore: {error}")
            return ""
        return (found or b"").decode("utf-8", "surrogateescape")

    # The index; the caller holds the lock, whose descriptor git inherits.

    async def listed(self, lock: int | None, kinds: Sequence[str] = CHANGED, timeout: float | None = None) -> list[str]:
        """Paths of these kinds, of `CHANGED` unordered and with duplicates; nested repositories as `path/`. Excludes names that
        are not UTF-8, because JSON cannot represent them."""
        args = ["ls-files", "-z", *kinds, "--exclude-standard", *self._pathspec]
        usual = _TIMEOUT_SECONDS if self._has_project else _SMALL_TIMEOUT_SECONDS
        result = await self._git(args, lock=lock, timeout=timeout or usual)
        listed = list(filter(is_utf8, result.names))
        return listed if self._has_project else await self._without_left_out(listed, lock)

    async def _without_left_out(self, listed: list[str], lock: int | None) -> list[str]:
        """Leaves out files by the `.ignore` files of a directory without git: git knows one name of such files at a time."""
        self._has_ignore_files = self._has_ignore_files or any(name.rpartition("/")[2] == _IGNORE_FILE for name in listed)
        if not self._has_ignore_files:
            return listed
        args = ["ls-files", "-z", "-o", "-i", "--directory", f"--exclude-per-directory={_IGNORE_FILE}"]
        left_out = set((await self._git(args, lock=lock)).names)
        return [name for name in listed if left_out.isdisjoint([name, *(f"{folder}/" for folder in PurePath(name).parents)])]

    async def files_and_ignored(self) -> tuple[list[str], set[str]]:
        """Absolute paths of the files in the index, and of the ignored files and directories."""
        args = ["status", "--porcelain", "-z", "--no-renames", "--ignore-submodules=all"]
        args += ["--untracked-files=all", "--ignored=matching", *self._pathspec]
        files, ignored = [], set()
        for line in (await self._git(args)).names:
            path = f"{self._worktree}/{line[3:]}"
            if line.startswith("A"):  # which everything in the index is, as there is no commit
                files.append(path)
            elif line.startswith("!!"):
                ignored.add(path.removesuffix("/"))
        return files, ignored

    async def tracked_though_ignored(self) -> list[str]:
        """Files that the project's repository tracks although its ignore rules match them."""
        if not self._has_project:
            return []
        args = ["ls-files", "-z", "-c", "-i", "--exclude-standard", "--full-name", *self._pathspec]
        result = await self._project.run(*args, env={"GIT_LITERAL_PATHSPECS": "1"})
        return list(filter(is_utf8, result.names)) if result.ok else []

    async def update(self, paths: Iterable[str], lock: int | None) -> None:
        """Updates each path in the index from the worktree, or removes it."""
        args = ["update-index", "-q", "--refresh", "--add", "--remove", "--replace", "-z", "--stdin"]
        options = await self._options_for_first_update() if self.index_signature() is None else ()
        await self._git(args, stdin=nul_separated(paths), lock=lock, options=options, timeout=_LONG_TIMEOUT_SECONDS)

    async def _options_for_first_update(self) -> Sequence[str]:
        """Writes all contents into one pack, seven times faster than loose objects. Older git would make a pack for each."""
        version = await self._project.run("version")
        numbers = [int(number) for number in re.findall(r"\d+", version.text)[:2]]
        return ("-c", "core.bigFileThreshold=1") if numbers >= [2, 37] else ()

    async def put(self, links: Mapping[str, bytes], removed: Iterable[str], lock: int | None) -> None:
        """Adds links with these targets to the index and removes paths, regardless of the worktree."""
        lines = [f"0 {_NO_BLOB}\t{path}" for path in removed]
        lines += [f"{LINK} {self._store_blob(target)}\t{path}" for path, target in links.items()]
        await self._git(["update-index", "-z", "--index-info"], stdin=nul_separated(lines), lock=lock)

    async def refresh(self, lock: int | None) -> None:
        """Refreshes the index, so that `listed` does not read files again that were only touched."""
        if self.index_signature():
            await self._git(["update-index", "-q", "--refresh"], lock=lock)

    async def write_tree(self, lock: int | None) -> str:
        return (await self._git(["write-tree"], lock=lock)).text

    async def tree_with(self, tree: str, changed: Mapping[str, Entry | None], lock: int | None) -> str:
        """Writes a tree with these entries changed; None removes one. The index does not change."""
        scratch = self.git_dir / "index.scratch"
        aside = {"GIT_INDEX_FILE": str(scratch)}
        removed = [f"0 {_NO_BLOB}\t{path}" for path, entry in changed.items() if entry is None]
        put = [f"{entry.mode} {entry.blob}\t{path}" for path, entry in changed.items() if entry is not None]
        lines = nul_separated([*removed, *put])
        try:
            scratch.with_name("index.scratch.lock").unlink(missing_ok=True)
            await self._git(["read-tree", checked(tree)], lock=lock, env=aside)
            await self._git(["update-index", "--replace", "-z", "--index-info"], stdin=lines, lock=lock, env=aside)
            return (await self._git(["write-tree"], lock=lock, env=aside)).text
        finally:
            scratch.unlink(missing_ok=True)

    def index_signature(self) -> Signature | None:
        """Changes whenever the index is written, because git replaces the file."""
        try:
            found = (self.git_dir / "index").stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def drop_index(self) -> None:
        for name in ("index", "index.lock"):
            (self.git_dir / name).unlink(missing_ok=True)

    def keep(self, tree: str) -> None:
        """Protects a tree from `collect` for seven days from now."""
        now = clock.now_ms() / 1000
        if now - self._kept.get(tree, 0) <= _KEEP_AGAIN_SECONDS:
            return
        whole = self.git_dir / f"keep.{tree}"
        try:
            whole.write_text(f"{tree}\n")
            whole.replace(self.git_dir / "refs" / "keep" / tree)  # a backup never sees half of one
        except OSError as error:
            raise SnapshotFailed(str(error)) from error
        self._kept[tree] = now

    def note_repositories_inside(self, tree: str, folders: set[str]) -> None:
        """Notes nested repositories that were there with the tree. Raises OSError."""
        if folders and self._noted != (tree, folders):
            noted, whole = self.git_dir / "inside" / tree, self.git_dir / f"inside.{tree}"
            noted.parent.mkdir(exist_ok=True)
            whole.write_bytes(nul_separated(sorted(folders | self.repositories_inside(tree))))
            whole.replace(noted)
            self._noted = tree, folders

    def repositories_inside(self, tree: str) -> set[str]:
        """The nested repositories that a snapshot left out, as `path/`. Raises OSError."""
        try:
            noted = (self.git_dir / "inside" / checked(tree)).read_bytes()
        except FileNotFoundError:
            return set()
        return set(noted.decode("utf-8", "surrogateescape").split("\0")[:-1])

    def _store_blob(self, content: bytes) -> str:
        """Writes a loose object as `git hash-object -w` does, without a process."""
        stored = b"blob %d\0%s" % (len(content), content)
        object_id = hashlib.sha1(stored, usedforsecurity=False).hexdigest()
        path = self.git_dir / "objects" / object_id[:2] / object_id[2:]
        path.parent.mkdir(exist_ok=True)
        temporary = path.with_name(f"tmp_obj_{object_id[2:]}")
        temporary.write_bytes(zlib.compress(stored))
        temporary.replace(path)
        return object_id

    async def adopt(self, source: Path, trees: Iterable[str]) -> None:
        """Copies trees with all their objects from another repository into one pack, and keeps them."""
        wanted = [checked(tree) for tree in trees]
        objects = re.sub(r'(["\\])', r"\\\1", str(source / "objects"))
        alternates = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{objects}"'}  # a list that colons separate
        args = ["pack-objects", "-q", "--revs", "--delta-base-offset", str(self.git_dir / "objects" / "pack" / "pack")]
        lines = "".join(f"{tree}\n" for tree in wanted).encode()
        await self._git(args, stdin=lines, env=alternates, timeout=_LONG_TIMEOUT_SECONDS, seen=[source])
        for tree in wanted:
            self.keep(tree)

    # Reading; needs no lock.

    async def entries(self, tree: str, paths: Iterable[str]) -> dict[str, Entry]:
        """The files and links among `paths` in the tree."""
        found: dict[str, Entry] = {}
        remaining = iter(paths)
        while some := list(islice(remaining, 500)):
            wanted = set(some)
            result = await self._git(["ls-tree", "-z", "--full-tree", checked(tree), "--", *some])
            found.update(entry for entry in tree_entries(result.stdout) if entry[0] in wanted)
        return found

    async def ignored_by(self, tree: str, paths: Sequence[str]) -> set[str]:
        """The paths that the tree's ignore rules leave out, or the present ones outside of the worktree."""
        folders = {str(folder) for path in paths for folder in PurePath(path).parents}
        ignored: set[str] = set()
        for name in (".gitignore",) if self._has_project else (".gitignore", _IGNORE_FILE):
            found = await self.entries(tree, [str(PurePath(folder, name)) for folder in folders])
            contents = await self.blobs(entry.blob for entry in found.values())
            rules = {path.removesuffix(name): contents.get(entry.blob, b"") for path, entry in found.items() if not entry.is_link}
            ignored |= await self._ignored_in(rules, paths)
        return ignored

    async def _ignored_in(self, rules: Mapping[str, bytes], paths: Sequence[str]) -> set[str]:
        """`rules`: those of a `.gitignore` by its folder. Git reads them in a worktree that has nothing else."""
        with tempfile.TemporaryDirectory(prefix="opensession-rules-") as worktree:
            await asyncio.to_thread(_put_rules, Path(worktree), rules)
            result = await self._git(
                ["check-ignore", "--no-index", "-z", "--stdin"],
                stdin=nul_separated(f"./{path}" for path in paths),  # a name may begin as a pattern does
                env={"GIT_WORK_TREE": worktree, "GIT_LITERAL_PATHSPECS": "0"},
                seen=[Path(worktree)],
                also_fine=_NOTHING_IGNORED,
            )
        return {name.removeprefix("./") for name in result.names}

    async def blobs(self, blob_ids: Iterable[str], max_bytes: int | None = None) -> dict[str, bytes]:
        """Contents by id, without missing objects; of as many as have `max_bytes` together."""
        wanted = list(dict.fromkeys(blob_ids))
        if not wanted:
            return {}
        listed = "".join(f"{blob}\n" for blob in wanted).encode()
        result = await self._git(["cat-file", "--batch"], stdin=listed, max_bytes=max_bytes, also_fine=TOO_MUCH_OUTPUT)
        return dict(batch(result.stdout))

    async def changed(self, before: str, after: str) -> list[str]:
        return (await self._diff(["--name-only", "-z"], before, after)).names

    async def changes(self, before: str, after: str) -> list[TreeChange]:
        """Without patches if these have more than MAX_PATCH_BYTES."""
        form = ("--raw", "--numstat", "--full-index", "-z")
        result = await self._diff([*form, "--patch"], before, after, MAX_PATCH_BYTES)
        if result.code == TOO_MUCH_OUTPUT:
            return changes((await self._diff(form, before, after)).stdout)
        listed, _, patches = result.stdout.partition(b"\0\0")
        return changes(listed, hunks_of(patches))

    async def diff_text(self, before: str, after: str) -> str:
        """The patches of as many files as have MAX_PATCH_BYTES together."""
        result = await self._diff(["--patch"], before, after, MAX_PATCH_BYTES)
        is_whole = result.code != TOO_MUCH_OUTPUT
        return result.text if is_whole else replace(result, stdout=result.stdout.rpartition(b"\ndiff --git ")[0]).text

    async def _diff(self, form: Sequence[str], before: str, after: str, max_bytes: int | None = None) -> GitResult:
        """`max_bytes`: as `Git.run` has it."""
        args = ["diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", *form]
        compared = [*args, checked(before), checked(after), *self._pathspec]
        return await self._git(compared, max_bytes=max_bytes, also_fine=TOO_MUCH_OUTPUT)

    # Housekeeping.

    async def collect(self, kept_seconds: float = KEPT_SECONDS, *, is_alone: bool = False) -> None:
        """Deletes snapshots that were last used longer ago. Their objects are deleted a day later, because other work may need
        them; at once with `is_alone`, when the caller holds the lock."""
        await asyncio.to_thread(self._drop_old_refs, kept_seconds)
        await self._git(["gc", "--quiet", "--prune=now" if is_alone else "--prune=1.day.ago"], timeout=_LONG_TIMEOUT_SECONDS)

    async def size(self) -> int:
        """Bytes on disk; 0 before the first snapshot."""
        if not (self.git_dir / "HEAD").exists():
            return 0
        counts = dict(line.split(": ") for line in (await self._git(["count-objects", "-v"])).text.splitlines())
        return (int(counts["size"]) + int(counts["size-pack"])) * 1024

    def _drop_old_refs(self, kept_seconds: float) -> None:
        for ref in (self.git_dir / "refs" / "keep").iterdir():
            if ref.stat().st_mtime < clock.now_ms() / 1000 - kept_seconds:
                ref.unlink()
                (self.git_dir / "inside" / ref.name).unlink(missing_ok=True)
                self._noted = None
                self._kept.pop(ref.name, None)

    def _own_git(self, *seen: Path) -> Git:
        """Git that sees the checkout and `seen`, with this repository in place of the project's. Raises OSError."""
        return replace(self._project, also=tuple(map(HeldDirectory, (self.git_dir, *seen))), repository=None)

    async def _git(
        self,
        args: Sequence[str],
        *,
        stdin: bytes = b"",
        lock: int | None = None,
        env: Mapping[str, str] = {},
        options: Sequence[str] = (),
        timeout: float = _TIMEOUT_SECONDS,
        seen: Sequence[Path] = (),
        also_fine: int = 0,
        max_bytes: int | None = None,
    ) -> GitResult:
        try:
            git = self._own_git(*seen)
        except OSError as error:
            raise SnapshotFailed(f"git {args[0]}: {error}") from error
        result = await git.run(
            *self._options,
            *options,
            *args,
            env={**self._environment, **env},
            stdin=stdin,
            timeout=timeout,
            pass_fds=() if lock is None else (lock,),
            max_bytes=max_bytes,
        )
        if result.code not in (0, also_fine):
            reason = f"git {args[0]}: {result.stderr or f'exit status {result.code}'}"
            raise SnapshotFailed(reason, is_final=result.code == TIMED_OUT and not self._has_project)
        return result


def _put_rules(worktree: Path, rules: Mapping[str, bytes]) -> None:
    for folder, content in rules.items():
        with suppress(OSError):  # the names may be too long for one path
            (worktree / folder).mkdir(parents=True, exist_ok=True)
            (worktree / folder / ".gitignore").write_bytes(content)


def _options(config: Mapping[str, str]) -> list[str]:
    return [argument for name, value in config.items() for argument in ("-c", f"{name}={value}")]


def _ignore_line(path: str) -> str:
    """A line of an ignore file that matches this directory alone."""
    return "/" + re.sub(r"([\\*?\[\] !#])", r"\\\1", path) + "/"
