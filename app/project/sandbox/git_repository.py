"""The git repository of a directory, found without running git.

A command can rewrite the checkout's `.git`. So a `.git` that points outside is accepted only if the git directory there, which
commands cannot write, points back to this checkout, or if the user may work there anyway.
"""

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from app.util.git_obstacles import REPOSITORY_FILES, repository_obstacle
from app.util.project_files import read_small, resolved

_WORKTREE_LINE = re.compile(r"^[^\S\n]*worktree[^\S\n]*=(.+)$", re.MULTILINE)
"""Takes no longer than to read the file, whatever is in it: other threads wait for a search to end."""
_INCLUDE = re.compile(r"\[\s*include", re.IGNORECASE)
"""A section can begin anywhere in a line."""
_FOLDERS = ("info", "logs", "objects", "objects/info", "objects/pack", "refs", "worktrees")
_MAX_ENTRIES = 20_000


@dataclass(frozen=True, slots=True)
class GitRepository:
    """Paths without symlinks. In a linked worktree `git_dir` is not the repository's `common_dir`."""

    checkout: Path
    git_dir: Path
    common_dir: Path

    @property
    def is_linked(self) -> bool:
        return self.git_dir != self.common_dir

    @property
    def main_checkout(self) -> Path:
        """The checkout that the git directory belongs to; for a submodule or `--separate-git-dir`, this checkout itself."""
        return self.common_dir.parent if self.is_linked or self.common_dir.name == ".git" else self.checkout

    @property
    def outside(self) -> list[Path]:
        """The git directories that do not lie in the checkout."""
        return [] if self.common_dir.is_relative_to(self.checkout) else [self.common_dir]


def find_repository(directory: Path, admits: Callable[[str], bool]) -> GitRepository | None:
    """Looks as git does: in the directory, then in those above. None outside git, in a bare repository, and if `.git` is not
    accepted. `admits(path)`: may those who work in the directory also work at `path` (already resolved)?"""
    real = Path(os.path.realpath(directory))
    for checkout in (real, *real.parents):
        if os.path.lexists(checkout / ".git"):
            found = repository_of(checkout, admits)
            if found is not None or not os.path.isdir(checkout / ".git"):  # noqa: PTH112  a Path may raise
                return found
        if _is_git_directory(checkout):
            return None
    return None


def repository_of(checkout: Path, admits: Callable[[str], bool] = lambda _: False) -> GitRepository | None:
    """`checkout`: the top of a checkout, resolved. None if it has no repository that is accepted."""
    git_dir = _git_directory(checkout / ".git")
    if git_dir is None or not _is_git_directory(git_dir):
        return None
    common_dir = _common_directory(git_dir)
    if common_dir is None:
        return None
    is_inside = git_dir.is_relative_to(checkout) and common_dir.is_relative_to(checkout)
    if is_inside or _names_back(git_dir, checkout) or (admits(str(git_dir)) and admits(str(common_dir))):
        return GitRepository(checkout, git_dir, common_dir)
    return None


def problem_of(repository: GitRepository, *, is_walled: bool) -> str | None:
    """Why git must not be run in the repository; None if it may. `is_walled`: git sees nothing else of the machine; otherwise
    nothing in the git directory may lead out of that directory."""
    if refused := repository_obstacle(repository.checkout, repository.git_dir):
        return str(refused)
    for folder in dict.fromkeys((repository.git_dir, repository.common_dir)):
        if os.path.realpath(folder) != str(folder):
            return f"{folder} is another directory than when the work began"
        if not is_walled and (reason := _way_out(folder)):
            return reason
    return None


def _way_out(folder: Path) -> str | None:
    linked = next(_links(folder), None)
    if linked is not None:
        return f"{linked} is a symbolic link, which git does not follow without a sandbox"
    if read_small(folder / "objects" / "info" / "alternates").strip():
        return f"{folder} takes objects from another repository (objects/info/alternates), which it does not without a sandbox"
    including = next((name for name in ("config", "config.worktree") if _INCLUDE.search(read_small(folder / name))), None)
    return f"{folder / including} includes other files, which it does not without a sandbox" if including else None


def _links(folder: Path) -> Iterator[Path]:
    """The symbolic links among the files that git reads and writes."""
    yield from (folder / name for name in (*REPOSITORY_FILES, *_FOLDERS) if (folder / name).is_symlink())
    flat = (folder / name for name in ("objects", "objects/pack", "objects/info", "info", "worktrees"))
    entries = chain(chain.from_iterable(map(_entries, flat)), _entries_below([folder / "refs", folder / "logs"]))
    yield from (Path(entry.path) for entry in islice(entries, _MAX_ENTRIES) if entry.is_symlink())


def _entries_below(folders: list[Path]) -> "Iterator[os.DirEntry[str]]":
    while folders:
        for entry in _entries(folders.pop()):
            yield entry
            if entry.is_dir(follow_symlinks=False):
                folders.append(Path(entry.path))


def _entries(folder: Path) -> "list[os.DirEntry[str]]":
    """The folder's entries, at most _MAX_ENTRIES; none if it cannot be read."""
    try:
        with os.scandir(folder) as found:
            return list(islice(found, _MAX_ENTRIES))
    except OSError:
        return []


def _git_directory(entry: Path) -> Path | None:
    """The directory that `.git` is, or that the file `.git` names; resolved."""
    if os.path.isdir(entry):  # noqa: PTH112
        return Path(os.path.realpath(entry))
    prefix, _, name = read_small(entry).strip().partition(": ")
    found = resolved(entry.parent / name) if prefix == "gitdir" and name and "\0" not in name else ""
    return Path(found) if found else None


def _common_directory(git_dir: Path) -> Path | None:
    """The repository's git directory. None if `commondir` names another than that in whose `worktrees` folder it stands."""
    named = read_small(git_dir / "commondir").strip()
    if not named:
        return git_dir
    store = git_dir.parent.parent
    return store if git_dir.parent.name == "worktrees" and _leads_to(named, store, git_dir) else None


def _is_git_directory(folder: Path) -> bool:
    """False for a path that cannot be asked for, as one that is too long: a Path would raise."""
    has_folders = all(os.path.isdir(folder / name) for name in ("objects", "refs"))  # noqa: PTH112
    has_store = has_folders or os.path.exists(folder / "commondir")  # noqa: PTH110
    return has_store and os.path.lexists(folder / "HEAD")


def _names_back(git_dir: Path, checkout: Path) -> bool:
    """Whether the git directory names the checkout: of a linked worktree in `gitdir`, of a submodule in `core.worktree`."""
    if git_dir.parent.name == "worktrees":
        return _leads_to(read_small(git_dir / "gitdir").strip(), checkout / ".git", git_dir)
    worktree = _WORKTREE_LINE.search(read_small(git_dir / "config"))
    return worktree is not None and _leads_to(worktree[1].strip(), checkout, git_dir)


def _leads_to(name: str, path: Path, base: Path) -> bool:
    """`name` is relative to `base`. A `path` that is itself a link never matches: it could be the `.git` of another checkout."""
    return bool(name) and "\0" not in name and resolved(base / name) == str(path)
