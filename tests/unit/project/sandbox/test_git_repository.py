"""Which git repository a directory has, where its files say so falsely."""

import time
from pathlib import Path

import pytest
from git_files import git, put_file
from obstacles import endless_links, unresolved
from running_app import make_workspace

from app.project.sandbox.git_repository import find_repository, problem_of, repository_of


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """One with a linked worktree and a submodule."""
    repo = make_workspace(tmp_path.resolve() / "repo")
    git(repo, "worktree", "add", "-q", str(repo / "linked"))
    git(repo, "submodule", "--quiet", "add", str(repo), "sub")
    return repo


def test_a_worktree_and_a_submodule_are_named_back(repo: Path) -> None:
    found = [repository_of(place) for place in (repo, repo / "linked", repo / "sub")]
    dirs = [each and str(each.git_dir.relative_to(repo)) for each in found]
    assert dirs == [".git", ".git/worktrees/linked", ".git/modules/sub"]


def test_another_checkouts_repository_is_not_believed(repo: Path) -> None:
    """Not by a link to the `.git` file of a worktree or submodule, which its repository names back, either."""
    place = repo.parent / "place"
    place.mkdir()
    for target in (".git", ".git/worktrees/linked", "linked/.git", "sub/.git", ".git/modules/sub"):
        (place / ".git").symlink_to(repo / target)
        assert repository_of(place) is None and find_repository(place, lambda _: False) is None, f"a link to {target}"
        (place / ".git").unlink()
        (place / ".git").write_text(f"gitdir: {repo / target}\n")
        assert repository_of(place) is None and find_repository(place, lambda _: False) is None, f"a file that names {target}"
        (place / ".git").unlink()


def test_a_repository_that_no_path_leads_to_is_none(repo: Path) -> None:
    endless_links(repo / "endless")
    with unresolved() as place:
        for name in (place, repo / "endless", "a\0b", "x" * 5000):
            for file in ("linked/.git", ".git/worktrees/linked/commondir", ".git/worktrees/linked/gitdir"):
                kept = (repo / file).read_text()
                (repo / file).write_text(f"gitdir: {name}\n" if file == "linked/.git" else f"{name}\n")
                assert repository_of(repo / "linked") is None, (name, file)
                (repo / file).write_text(kept)


@pytest.mark.parametrize("config", ["\n" * 2**19, f"worktree = {'x' * 9}{' ' * 2**19}x", "worktree=" + " x" * 2**18])
def test_a_configuration_of_blanks_takes_no_time(repo: Path, config: str) -> None:
    """Nobody else would be served meanwhile."""
    (repo / ".git" / "modules" / "sub" / "config").write_text(config)
    began = time.monotonic()
    assert repository_of(repo / "sub") is None
    assert time.monotonic() - began < 1


def test_it_is_believed_where_who_works_there_may_work_too(repo: Path) -> None:
    place = repo.parent / "place"
    put_file(place / ".git", "gitdir: ../repo/.git\n")
    found = find_repository(place, lambda path: path.startswith(str(repo)))
    assert found and (found.checkout, found.git_dir) == (place, repo / ".git")


def test_without_a_sandbox_nothing_is_included(repo: Path) -> None:
    found = repository_of(repo)
    assert found and problem_of(found, is_walled=False) is None
    texts = ["[include]\npath = x\n", "[core][include]path=x\n", "\ufeff[INCLUDE]\npath = x\n"]
    for text in (*texts, '[core]\n\ta = b\n [ includeIf "gitdir:/"] path = x\n'):
        (repo / ".git" / "config").write_text(text)
        assert problem_of(found, is_walled=False) and problem_of(found, is_walled=True) is None, text


def test_what_was_exchanged_since_is_refused(repo: Path) -> None:
    found = repository_of(repo)
    assert found
    (repo / ".git").rename(repo / "other")
    (repo / ".git").symlink_to(repo / "other")
    assert problem_of(found, is_walled=False) and problem_of(found, is_walled=True)
