"""Which git repository a directory has, where its files say so falsely."""

from pathlib import Path

import pytest
from git_files import git
from running_app import make_workspace

from app.project.sandbox.git_repository import find_repository, problem_of, repository_of


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_workspace(tmp_path.resolve() / "repo")


def nothing(path: str) -> bool:
    return False


def test_a_worktree_and_a_submodule_are_named_back(repo: Path) -> None:
    linked = repo.parent / "linked"
    git(repo, "worktree", "add", "-q", str(linked))
    git(repo, "submodule", "--quiet", "add", str(repo), "sub")
    found = [repository_of(place) for place in (repo, linked, repo / "sub")]
    assert [each and each.git_dir.relative_to(repo) for each in found] == [
        Path(".git"), Path(".git/worktrees/linked"), Path(".git/modules/sub"),
    ]  # fmt: skip


@pytest.mark.parametrize("target", [".git", ".git/worktrees/linked", "linked/.git", "sub/.git", ".git/modules/sub"])
@pytest.mark.parametrize("kind", ["link", "file"])
def test_another_checkouts_repository_is_not_believed(repo: Path, target: str, kind: str) -> None:
    """Not by a link to the `.git` file of a worktree or submodule, which its repository names back, either."""
    git(repo, "worktree", "add", "-q", str(repo / "linked"))
    git(repo, "submodule", "--quiet", "add", str(repo), "sub")
    place = repo.parent / "place"
    place.mkdir()
    if kind == "link":
        (place / ".git").symlink_to(repo / target)
    else:
        (place / ".git").write_text(f"gitdir: {repo / target}\n")
    assert repository_of(place) is None and find_repository(place, nothing) is None


def test_it_is_believed_where_who_works_there_may_work_too(repo: Path) -> None:
    place = repo.parent / "place"
    place.mkdir()
    (place / ".git").write_text("gitdir: ../repo/.git\n")
    found = find_repository(place, lambda path: path.startswith(str(repo)))
    assert found and (found.checkout, found.git_dir) == (place, repo / ".git")


@pytest.mark.parametrize("text", ["[include]\npath = x\n", "[core][include]path=x\n", "\ufeff[INCLUDE]\npath = x\n",
                                  '[core]\n\ta = b\n [ includeIf "gitdir:/"] path = x\n'])  # fmt: skip
def test_without_a_sandbox_nothing_is_included(repo: Path, text: str) -> None:
    found = repository_of(repo)
    assert found and problem_of(found, is_walled=False) is None
    (repo / ".git" / "config").write_text(text)
    assert problem_of(found, is_walled=False) and problem_of(found, is_walled=True) is None


def test_what_was_exchanged_since_is_refused(repo: Path) -> None:
    found = repository_of(repo)
    assert found
    (repo / ".git").rename(repo / "other")
    (repo / ".git").symlink_to(repo / "other")
    assert problem_of(found, is_walled=False) and problem_of(found, is_walled=True)
