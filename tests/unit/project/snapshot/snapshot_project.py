"""A project with real git in it, or a directory without git, and snapshots of it."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from git_files import git, put_file, server_git, server_git_outside

from app.project.snapshot.snapshots import Snapshots, snapshot_dir


class Project:
    has_git = True

    def __init__(self, base: Path, *, has_git: bool = True) -> None:
        self.root = base / "project"
        self.data = base / "data"
        self.root.mkdir(parents=True)
        self.has_git = has_git
        if has_git:
            self.git("init", "--quiet", "--initial-branch=main")

    def git(self, *args: str) -> str:
        return git(self.root, *args)

    def write(self, path: str, content: str | bytes = "") -> Path:
        return put_file(self.root / path, content)

    def commit(self) -> None:
        self.git("add", ".")
        self.git("commit", "-qm", "first")

    def snapshots(self, directory: Path | None = None, exclude: tuple[Path, ...] = (), max_bytes: int | None = None) -> Snapshots:
        git = server_git(self.root) if self.has_git else server_git_outside(self.root)
        return Snapshots(self.git_dir, git, directory or self.root, (self.data, *exclude), max_bytes=max_bytes)

    @property
    def git_dir(self) -> Path:
        """The repository of its snapshots."""
        return snapshot_dir(self.data, "global", self.root)

    def held(self, tree: str) -> set[str]:
        """Names in a snapshot, placeholders too."""
        names = git(self.root, "--git-dir", str(self.git_dir.absolute()), "ls-tree", "-r", "-z", "--name-only", tree)
        return {name for name in names.split("\0") if name}

    def relative(self, paths: list[Path]) -> set[str]:
        return {str(path.relative_to(self.root)) for path in paths}

    def replace(self, name: str, content: str | None = None, *, link: str | Path | None = None, below: str = "") -> None:
        """Whatever is there goes; then come a file, a link, or a file below it."""
        path = self.root / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if link is not None:
            path.symlink_to(link)
        elif content is not None:
            self.write(f"{name}{below}", content)


@contextmanager
def counted_git(tmp_path: Path) -> Iterator[Callable[[], int]]:
    """A `git` on PATH that counts how often it is run."""
    log = tmp_path / "log"
    log.write_text("")
    wrapper = tmp_path / "bin" / "git"
    put_file(wrapper, f'#!/bin/sh\necho run >> "{log}"\nexec "{shutil.which("git")}" "$@"\n')
    wrapper.chmod(0o755)
    path = os.environ["PATH"]
    os.environ["PATH"] = f"{wrapper.parent}:{path}"
    try:
        yield lambda: len(log.read_text().splitlines())
    finally:
        os.environ["PATH"] = path
