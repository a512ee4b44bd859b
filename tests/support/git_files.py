"""git as tests run it, files that they put there, and what a worktree holds."""

import os
import stat
import subprocess
from pathlib import Path

from app.project.sandbox.git import Git, git_of
from app.project.sandbox.git_repository import find_repository
from app.project.sandbox.sandbox import OFF, Sandbox
from app.util.project_files import HeldDirectory

_OPTIONS = {"user.name": "Test", "user.email": "test@example.com", "commit.gpgsign": "false", "protocol.file.allow": "always"}


def git(cwd: Path, *args: str) -> str:
    """What it prints, stripped. Its own variables of the environment are left out: a hook that runs the tests sets some."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    options = [word for name, value in _OPTIONS.items() for word in ("-c", f"{name}={value}")]
    result = subprocess.run(["git", *options, *args], cwd=cwd, env=env, check=True, capture_output=True, text=True)
    return result.stdout.strip()


def put_file(path: Path, content: str | bytes = "x\n") -> Path:
    """With the directories above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def server_git(checkout: Path, sandbox: Sandbox = OFF) -> Git:
    """git as the server runs it there."""
    found = find_repository(checkout, lambda _: True)
    assert found is not None
    return git_of(sandbox, found)


def server_git_outside(directory: Path, sandbox: Sandbox = OFF) -> Git:
    """The same in a directory without git."""
    return Git(sandbox, HeldDirectory(directory))


def state(path: Path) -> object:
    """What a restore must bring back: type, content, executable bit; None where nothing is."""
    if path.is_symlink():
        return ("link", os.readlink(path))
    if path.is_file():
        return ("file", path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
    return "directory" if path.is_dir() else None


def files(root: Path) -> dict[str, object]:
    """Every file and link below `root` but git's own."""
    found: dict[str, object] = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".git"]
        for path in (Path(folder, name) for name in (*names, *folders) if name != ".git"):
            if path.is_symlink() or not path.is_dir():
                found[os.path.relpath(path, root)] = state(path)
    return dict(sorted(found.items()))
