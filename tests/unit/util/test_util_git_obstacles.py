import asyncio
import os
from pathlib import Path

import pytest
from git_files import git as run
from git_files import server_git
from obstacles import SPECIAL, put

from app.project.discovery import OUTSIDE_GIT, discover
from app.project.sandbox.git import NOT_STARTED
from app.util.git_obstacles import obstacle, reference_obstacle

FILES = [
    *("HEAD", "sub/HEAD", ".git/HEAD", ".git/config", ".git/config.worktree", ".git/commondir", ".git/index", ".git/packed-refs"),
    *(".git/info/exclude", ".git/info/attributes", ".git/objects/info/alternates", ".git/refs/heads/main"),
    *(".gitignore", ".gitattributes"),
]
PATIENCE = 5


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    directory = tmp_path / "checkout"
    (directory / "sub").mkdir(parents=True)
    run(directory, "init", "-q", "-b", "main")
    run(directory, "commit", "-q", "--allow-empty", "-m", "first")
    return directory


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kind", ["fifo", "endless"])
async def test_where_git_would_wait_there_is_no_repository_and_it_is_not_started(
    checkout: Path, kind: str, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    git = server_git(checkout)
    (checkout / name).unlink(missing_ok=True)
    put(kind, checkout / name, checkout)
    async with asyncio.timeout(PATIENCE):
        assert await discover(checkout / "sub") == await discover(checkout / "sub") == OUTSIDE_GIT
        assert caplog.text.count(str(checkout / name)) == 1
        if name not in ("HEAD", "sub/HEAD"):
            result = await git.run("status", "--porcelain")
            assert result.code == NOT_STARTED and str(checkout / name) in result.stderr


@pytest.mark.parametrize("name", [".git/HEAD", ".git/config", ".git/info/exclude", ".gitignore"])
async def test_nor_where_it_would_read_a_huge_file(checkout: Path, name: str) -> None:
    git = server_git(checkout)
    (checkout / name).unlink(missing_ok=True)
    put("huge", checkout / name, checkout)
    assert (await git.run("status")).code == NOT_STARTED


async def test_nor_where_its_configuration_names_a_fifo(checkout: Path) -> None:
    git, written = server_git(checkout), (checkout / ".git/config").read_text()
    os.mkfifo(checkout / "fifo")
    for line in ("[include]\n path = {}", '[includeIf "gitdir:**"] Path={}', '[core]\n\texcludesFile = "{}"'):
        (checkout / ".git/config").write_text(written + line.format(checkout / "fifo") + "\n")
        assert (await git.run("status")).code == NOT_STARTED, line


async def test_a_git_file_that_leads_to_one(checkout: Path, tmp_path: Path) -> None:
    run(checkout, "worktree", "add", "-q", str(tmp_path / "linked"))
    git = server_git(tmp_path / "linked")
    assert obstacle(tmp_path / "linked") is None
    (checkout / ".git/config").rename(checkout / ".git/old")
    os.mkfifo(checkout / ".git/config")
    assert (await git.run("status")).code == NOT_STARTED


@pytest.mark.parametrize("kind", ["fifo", "endless"])
async def test_references_of_a_directory_that_is_opened(checkout: Path, kind: str) -> None:
    put(kind, checkout / ".git/refs/tags/deep/er", checkout)
    assert reference_obstacle(checkout / ".git") is not None
    async with asyncio.timeout(PATIENCE):
        assert await discover(checkout) == OUTSIDE_GIT


@pytest.mark.parametrize("kind", SPECIAL)
async def test_a_git_file_that_is_none(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put(kind, tmp_path / ".git", tmp_path)
    async with asyncio.timeout(PATIENCE):
        assert await discover(tmp_path) == OUTSIDE_GIT


async def test_honest_repositories_have_none(checkout: Path) -> None:
    (checkout / "HEAD").write_text("a file of the project")
    with (checkout / ".git/config").open("a") as config:
        config.write("[core]\n\texcludesFile = /dev/null\n\thooksPath = /dev/null\n[x]\n\tpath = sub\n")
    run(checkout, "tag", "v1")
    run(checkout, "pack-refs", "--all")
    assert obstacle(checkout) is obstacle(checkout / "sub") is reference_obstacle(checkout / ".git") is None
    assert (await server_git(checkout).run("status")).ok
