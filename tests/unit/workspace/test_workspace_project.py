from pathlib import Path

import pytest
from git_files import git, server_git

from app.project.discovery import OUTSIDE_GIT, ProjectInfo, branch, discover


def repository(path: Path, *, commits: int = 1) -> Path:
    path.mkdir(parents=True)
    git(path, "init", "--quiet", "--initial-branch=main")
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
