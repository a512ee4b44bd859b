"""The git directories of a checkout that lie outside of it: of a linked worktree, and of a submodule."""

import os
import re
from pathlib import Path

from app.util.project_files import is_below, read_bytes

_WORKTREE_LINE = re.compile(r"^\s*worktree\s*=\s*(.+?)\s*$", re.MULTILINE)


def git_directories(checkout: Path) -> list[Path]:
    """A command can write the checkout's `.git` file, so what that names is believed only where it names the checkout back: the
    directory itself lies outside of what the command can write."""
    git_dir = _named_by(checkout / ".git")
    if git_dir is None or git_dir.is_relative_to(os.path.realpath(checkout)):
        return []
    if git_dir.parent.name == "worktrees" and _is_same(_read(git_dir / "gitdir").strip(), checkout / ".git", git_dir):
        return [git_dir.parent.parent]
    worktree = _WORKTREE_LINE.search(_read(git_dir / "config"))
    return [git_dir] if worktree and _is_same(worktree[1], checkout, git_dir) else []


def _named_by(file: Path) -> Path | None:
    if not file.is_file():
        return None
    prefix, _, name = _read(file).strip().partition(": ")
    return Path(os.path.realpath(file.parent / name)) if prefix == "gitdir" and name else None


def _is_same(name: str, path: Path, base: Path) -> bool:
    """`name` is relative to `base`."""
    return bool(name) and os.path.realpath(base / name) == os.path.realpath(path)


def _read(file: Path) -> str:
    folder = os.path.realpath(file.parent)
    try:
        return (read_bytes(file, lambda real: is_below(real, folder)) or b"").decode("utf-8", "surrogateescape")
    except OSError:
        return ""
