import asyncio
import subprocess
from pathlib import Path

import pytest
from git_files import git
from obstacles import OBSTACLES, put

from app.project.discovery import discover
from app.workspace.workspace import Head


def made(directory: Path, *options: str) -> Path:
    directory.mkdir()
    git(directory, "init", "-q", "-b", "main", *options)
    git(directory, "commit", "-q", "--allow-empty", "-m", "first")
    return directory


async def head_of(directory: Path) -> Head:
    found = await discover(directory)
    assert found.git is not None
    head = Head(found.git)
    assert await head.refresh()
    return head


async def test_it_is_another_one_only_when_its_name_is(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    head = await head_of(tmp_path)
    assert head.branch == "main" and not await head.refresh(), "before the first commit"
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    git(tmp_path, "checkout", "-q", "main")
    assert not await head.refresh()
    git(tmp_path, "checkout", "-q", "-b", "feature/ü")
    assert await head.refresh() and head.branch == "feature/ü"
    git(tmp_path, "checkout", "-q", "--detach")
    assert await head.refresh() and head.branch == ""
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "second")
    assert not await head.refresh()


async def test_references_kept_as_reftables(tmp_path: Path) -> None:
    try:
        root = made(tmp_path / "root", "--ref-format=reftable")
    except subprocess.CalledProcessError:
        pytest.skip("this git knows no reftables")
    head = await head_of(root)
    assert head.branch == "main"
    git(root, "checkout", "-q", "-b", "other")
    assert await head.refresh() and head.branch == "other"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Somebody else's git directory, on the branch `secret`."""
    theirs = made(tmp_path / "theirs")
    git(theirs, "checkout", "-q", "-b", "secret")
    return theirs / ".git"


@pytest.mark.parametrize("kind", OBSTACLES)
async def test_whatever_stands_in_its_place_has_no_branch(
    tmp_path: Path, theirs: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = await head_of(made(tmp_path / "root"))
    monkeypatch.chdir(tmp_path / "root" / ".git")
    Path("HEAD").unlink()
    put(kind, tmp_path / "root" / ".git" / "HEAD", theirs / "HEAD")
    async with asyncio.timeout(5):
        assert await head.refresh() and head.branch == ""


@pytest.mark.parametrize("is_linked", [False, True])
async def test_a_git_directory_that_is_gone_or_became_a_link_to_another_s_has_none(
    tmp_path: Path, theirs: Path, is_linked: bool
) -> None:
    root = made(tmp_path / "root")
    head = await head_of(root)
    (root / ".git").rename(root / "moved")
    if is_linked:
        (root / ".git").symlink_to(theirs)
    assert await head.refresh() and head.branch == ""
