"""Which repository and project a directory belongs to, and which branch is checked out."""

import asyncio
import subprocess
from pathlib import Path

import pytest
from git_files import git, server_git
from obstacles import OBSTACLES, put

from app.project.discovery import OUTSIDE_GIT, ProjectInfo, branch, discover
from app.workspace.workspace import Head


def repository(path: Path, *options: str, commits: int = 1) -> Path:
    path.mkdir(parents=True)
    git(path, "init", "--quiet", "--initial-branch=main", *options)
    for i in range(commits):
        git(path, "commit", "--allow-empty", "-qm", f"commit {i} of {path}")
    return path


def roots(path: Path) -> list[str]:
    return sorted(git(path, "rev-list", "--max-parents=0", "--all").split())


async def test_a_repository_its_folders_worktrees_and_clones_are_one_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, linked = repository(tmp_path / "naïve repo", commits=3), tmp_path / "linked"
    git(root, "worktree", "add", "--quiet", str(linked))
    git(tmp_path, "clone", "--quiet", str(root), "clone")
    for folder in (root / "deep" / "down", linked / "sub"):
        folder.mkdir(parents=True)
    before = sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*"))
    found = ProjectInfo(id=roots(root)[0], worktree=root, checkout=root, vcs="git")
    assert await discover(root) == await discover(root / "deep" / "down") == found
    assert await discover(linked / "sub") == ProjectInfo(id=found.id, worktree=root, checkout=linked, vcs="git")
    assert (await discover(tmp_path / "clone")).id == found.id
    for outside in (tmp_path, tmp_path / "missing", root / ".git"):
        assert await discover(outside) == OUTSIDE_GIT
    await branch(server_git(root))
    assert sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*")) == before, "it is left as it is"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await discover(root) == OUTSIDE_GIT, "without git on the machine"


async def test_the_smallest_of_several_root_commits(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    for name in ("x", "y", "z"):
        git(root, "checkout", "--quiet", "--orphan", name)
        git(root, "commit", "--allow-empty", "-qm", name)
    assert len(roots(root)) == 4
    assert (await discover(root)).id == roots(root)[0]


async def test_a_submodule_is_a_project_of_its_own(tmp_path: Path) -> None:
    inner, outer = repository(tmp_path / "inner"), repository(tmp_path / "outer")
    git(outer, "submodule", "add", "--quiet", str(inner), "sub")
    assert await discover(outer / "sub") == ProjectInfo(roots(inner)[0], outer / "sub", outer / "sub", "git")


async def test_a_git_directory_kept_elsewhere(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    git(root, "init", "--quiet", f"--separate-git-dir={tmp_path / 'elsewhere'}")
    assert (await discover(root)).worktree == root


async def test_a_detached_head_that_no_ref_reaches(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    [commit] = roots(root)
    git(root, "checkout", "--quiet", "--detach")
    git(root, "branch", "-D", "main")
    assert (await discover(root)).id == commit


async def test_before_the_first_commit_and_on_each_branch(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", commits=0)
    assert await discover(root) == ProjectInfo(id="global", worktree=root, checkout=root, vcs="git")
    assert await branch(server_git(root)) == "main"
    git(root, "commit", "--allow-empty", "-qm", "first")
    git(root, "checkout", "--quiet", "-b", "feature/日本")
    assert await branch(server_git(root)) == "feature/日本"
    git(root, "checkout", "--quiet", "--detach")
    assert await branch(server_git(root)) is None


async def test_a_checkout_that_the_configuration_alone_names_is_none(tmp_path: Path) -> None:
    """Whoever may write the repository's configuration would choose what belongs to the project."""
    root = repository(tmp_path / "wide" / "repo")
    git(root, "config", "core.worktree", str(tmp_path / "wide"))
    assert await discover(root) == OUTSIDE_GIT


# The branch that is checked out.


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


async def test_a_look_that_is_cancelled_has_seen_nothing(tmp_path: Path) -> None:
    head = await head_of(repository(tmp_path / "root"))
    git(tmp_path / "root", "checkout", "-q", "-b", "other")
    looking = asyncio.create_task(head.refresh())
    await asyncio.sleep(0)
    looking.cancel()
    await asyncio.wait([looking])
    assert looking.cancelled() and await head.refresh() and head.branch == "other"


async def test_references_kept_as_reftables(tmp_path: Path) -> None:
    try:
        root = repository(tmp_path / "root", "--ref-format=reftable")
    except subprocess.CalledProcessError:
        pytest.skip("this git knows no reftables")
    head = await head_of(root)
    assert head.branch == "main"
    git(root, "checkout", "-q", "-b", "other")
    assert await head.refresh() and head.branch == "other"


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Somebody else's git directory, on the branch `secret`."""
    theirs = repository(tmp_path / "theirs")
    git(theirs, "checkout", "-q", "-b", "secret")
    return theirs / ".git"


@pytest.mark.parametrize("kind", OBSTACLES)
async def test_whatever_stands_in_its_place_has_no_branch(
    tmp_path: Path, theirs: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = await head_of(repository(tmp_path / "root"))
    monkeypatch.chdir(tmp_path / "root" / ".git")
    Path("HEAD").unlink()
    put(kind, tmp_path / "root" / ".git" / "HEAD", theirs / "HEAD")
    async with asyncio.timeout(5):
        assert await head.refresh() and head.branch == ""


@pytest.mark.parametrize("is_linked", [False, True])
async def test_a_git_directory_that_is_gone_or_became_a_link_to_another_s_has_none(
    tmp_path: Path, theirs: Path, is_linked: bool
) -> None:
    root = repository(tmp_path / "root")
    head = await head_of(root)
    (root / ".git").rename(root / "moved")
    if is_linked:
        (root / ".git").symlink_to(theirs)
    assert await head.refresh() and head.branch == ""
