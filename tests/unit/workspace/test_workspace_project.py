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


async def test_a_repository_and_its_subdirectories(tmp_path: Path) -> None:
    root = repository(tmp_path / "naïve repo", commits=3)
    (root / "deep" / "down").mkdir(parents=True)
    found = ProjectInfo(id=roots(root)[0], worktree=root, checkout=root, vcs="git")
    assert await discover(root) == found
    assert await discover(root / "deep" / "down") == found


async def test_the_smallest_of_several_root_commits(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    for name in ("x", "y", "z"):
        git(root, "checkout", "--quiet", "--orphan", name)
        git(root, "commit", "--allow-empty", "-qm", name)
    assert len(roots(root)) == 4
    assert (await discover(root)).id == roots(root)[0]


async def test_a_linked_worktree_belongs_to_the_same_project(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    linked = tmp_path / "linked"
    git(root, "worktree", "add", "--quiet", str(linked))
    (linked / "sub").mkdir()
    assert await discover(linked / "sub") == ProjectInfo(id=roots(root)[0], worktree=root, checkout=linked, vcs="git")


async def test_a_clone_has_the_same_id(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    git(tmp_path, "clone", "--quiet", str(root), "clone")
    assert (await discover(tmp_path / "clone")).id == (await discover(root)).id


async def test_before_the_first_commit(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", commits=0)
    assert await discover(root) == ProjectInfo(id="global", worktree=root, checkout=root, vcs="git")


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


async def test_outside_git(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    assert await discover(tmp_path) == OUTSIDE_GIT
    assert await discover(tmp_path / "missing") == OUTSIDE_GIT
    assert await discover(root / ".git") == OUTSIDE_GIT


async def test_without_git_on_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = repository(tmp_path / "repo")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert await discover(root) == OUTSIDE_GIT


async def test_the_repository_is_left_as_it_is(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo")
    before = sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*"))
    await discover(root)
    await branch(server_git(root))
    assert sorted((path, path.stat().st_mtime_ns) for path in root.rglob("*")) == before


async def test_branches(tmp_path: Path) -> None:
    root = repository(tmp_path / "repo", commits=0)
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
