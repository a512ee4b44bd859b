"""A server with members whose roots lie side by side, what lies around anna's that she must not reach, and repositories of hers
that try. Each outside file holds a canary, which no answer may have; a program that is run leaves a mark."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from git_files import git
from running_app import RunningApp, running_app
from user_logins import add_user, user

from app.providers.base import ModelRequest
from app.providers.scripted import ScriptedAnswer, ScriptedTurn, parse_turn

CANARIES = ("canary-of-bert", "canary-of-data", "canary-of-home", "canary-of-victim")
READS = (
    "/vcs", "/vcs/status", "/vcs/diff?mode=git", "/vcs/diff?mode=branch", "/vcs/diff/raw", "/file/status", "/file?path=.",
    "/file/content?path=f.txt", "/file/content?path=sub", "/project/current", "/path", "/find/file?query=t",
)  # fmt: skip


def done(request: ModelRequest) -> ScriptedTurn:
    return parse_turn([{"text": "Done."}])


@dataclass
class Ground:
    """`outside`: nothing of anna's writes there. `before`: what stood outside before she began."""

    base: Path
    app: RunningApp
    anna: RunningApp
    before: dict[str, object] = field(default_factory=dict)
    made: int = 0

    def __post_init__(self) -> None:
        self.outside, self.victim = self.base / "outside", self.base / "victim"
        self.root, self.bert = self.base / "roots" / "anna", self.base / "roots" / "bert"

    def repository(self) -> Path:
        """A new one of anna's: a commit, a changed file and one that git does not know."""
        self.made += 1
        return make_repository(self.root / f"r{self.made}", "mine")

    def marking(self, repo: Path) -> str:
        """A program that leaves a mark outside, and within what it may write."""
        script = repo.parent / f"{repo.name}.sh"
        script.write_text(f"#!/bin/sh\ntouch {self.outside}/ran-{repo.name}\ntouch {repo}/ran-{repo.name}\ncat\n")
        script.chmod(0o755)
        return str(script)

    def marks(self) -> list[str]:
        return [str(path) for path in _walk(self.base) if path.name.startswith("ran-")]

    def changed(self) -> list[str]:
        now = self.around()
        return sorted(path for path in now.keys() | self.before.keys() if now.get(path) != self.before.get(path))

    def around(self) -> dict[str, object]:
        """All that anna must not write: names, kinds and contents."""
        tops = (self.bert, self.victim, self.outside, self.base / "home", self.base / "data" / "kept")
        return {str(path): _state(path) for top in tops for path in _walk(top)}

    async def read(self, repo: Path, reads: tuple[str, ...] = READS) -> str:
        """All answers together."""
        return "\n".join(await asyncio.gather(*(self.get(repo, path) for path in reads)))

    async def get(self, repo: Path, path: str) -> str:
        return (await self.ask("GET", repo, path))[1]

    async def ask(self, method: str, repo: Path, path: str, body: Any = None) -> tuple[int, str]:
        response = await self.anna.client.request(method, path, json=body, headers=at(repo))
        return response.status_code, response.text


def at(directory: Path) -> dict[str, str]:
    return {"x-opencode-directory": str(directory)}


def make_repository(path: Path, text: str) -> Path:
    path.mkdir(parents=True)
    git(path, "init", "-q", "-b", "main")
    for name in ("f.txt", "g.txt"):
        (path / name).write_text(f"{text} 1\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", text)
    (path / "f.txt").write_text(f"{text} 2\n")
    (path / "unknown.txt").write_text(f"{text} 3\n")
    return path


def leaks(text: str) -> list[str]:
    return [canary for canary in CANARIES if canary in text]


def _walk(top: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(top):
        yield from (Path(folder, name) for name in (*folders, *files))


def _state(path: Path) -> object:
    with suppress(OSError):
        found = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        return found.st_mode, found.st_ino, content
    return None


def lay_out(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies around anna's root."""
    home = base / "home"
    for folder in ("outside", "home/.ssh", "victim/deep/er", "roots/anna"):
        (base / folder).mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OPENCODE_TEST_HOME", str(home))
    for name in (".bashrc", ".ssh/id", "notes.txt"):
        (home / name).write_text("# canary-of-home\n")
    for name in ("HEAD", "config", "index", "file.txt", "deep/file.txt", "deep/er/file.txt"):
        (base / "victim" / name).write_text("canary-of-victim\n")
    bert = make_repository(base / "roots" / "bert", "canary-of-bert")
    git(bert, "branch", "canary-of-bert-branch")
    git(bert, "worktree", "add", "-q", "-b", "canary-of-bert-linked", str(bert / "linked"))
    (bert / "canary-of-bert-name.txt").write_text("canary-of-bert\n")
    git(bert, "add", "canary-of-bert-name.txt")
    subprocess.run(["git", "init", "-q", "--bare", bert / "bare.git"], check=True)


@asynccontextmanager
async def hostile_ground(
    base: Path, monkeypatch: pytest.MonkeyPatch, *, sandbox: str = "require", model: ScriptedAnswer = done, **settings: Any
) -> AsyncIterator[Ground]:
    lay_out(base, monkeypatch)
    async with running_app(base, otherwise=model, patience=600, sandbox=sandbox, **settings) as app:
        await add_user(app, "bert", roots=[base / "roots" / "bert"])
        async with user(app, "anna", roots=[base / "roots" / "anna"]) as anna:
            make_repository(base / "data" / "kept", "canary-of-data")
            ground = Ground(base, app, anna)
            ground.before = ground.around()
            yield ground
