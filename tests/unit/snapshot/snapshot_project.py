"""A project with real git in it, and snapshots of it."""

import os
import stat
import subprocess
from pathlib import Path

from app.snapshot.snapshots import Snapshots, snapshot_dir

IDENTITY = [
    "-c",
    "user.name=Test",
    "-c",
    "user.email=test@example.com",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "protocol.file.allow=always",
]


def run_git(cwd: Path, *args: str) -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    result = subprocess.run(["git", *IDENTITY, *args], cwd=cwd, env=env, check=True, capture_output=True, text=True)
    return result.stdout.strip()


def state(path: Path) -> object:
    """What a restore must bring back: type, content, executable bit."""
    if path.is_symlink():
        return ("link", os.readlink(path))
    if path.is_file():
        return ("file", path.read_bytes(), bool(path.stat().st_mode & stat.S_IXUSR))
    return "directory" if path.is_dir() else None


def all_states(root: Path) -> dict[str, object]:
    """Every file and link below `root` but git's own."""
    found = {}
    for folder, folders, names in os.walk(root):
        if ".git" in folders:
            folders.remove(".git")
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in [*names, *links]:
            found[os.path.relpath(os.path.join(folder, name), root)] = state(Path(folder) / name)
    return found


class Project:
    def __init__(self, base: Path) -> None:
        self.root = base / "project"
        self.data = base / "data"
        self.root.mkdir(parents=True)
        self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *args: str) -> str:
        return run_git(self.root, *args)

    def write(self, path: str, content: str | bytes = "") -> Path:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)
        return target

    def snapshots(self, directory: Path | None = None, exclude: tuple[Path, ...] = (), max_bytes: int | None = None) -> Snapshots:
        git_dir = snapshot_dir(self.data, "global", self.root)
        return Snapshots(git_dir, self.root, directory or self.root, (self.data, *exclude), max_bytes=max_bytes)

    def relative(self, paths: list[Path]) -> set[str]:
        return {str(path.relative_to(self.root)) for path in paths}
