"""Repositories as people have them, on a server whose git runs in the sandbox: each shows what git shows on a command line."""

import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from git_files import git
from hostile_ground import Ground, at, hostile_ground
from sandboxed import needs_sandbox

pytestmark = needs_sandbox
FIRST = '[user]\n\tname = Ada\n[include]\n\tpath = dotfiles/git\n[includeIf "gitdir:/"]\n\tpath = "~/dotfiles/more" # and more\n'


@pytest.fixture
async def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ground]:
    async with hostile_ground(tmp_path, monkeypatch) as made:
        yield made


async def status(ground: Ground, repo: Path) -> set[str]:
    return {each["file"] for each in (await ground.anna.client.get("/vcs/status", headers=at(repo))).json()}


async def branch(ground: Ground, repo: Path) -> str | None:
    return (await ground.anna.client.get("/vcs", headers=at(repo))).json().get("branch")


async def test_a_linked_worktree_that_was_made_by_hand(ground: Ground) -> None:
    repo = ground.repository()
    for place in (ground.root / "linked", repo / "within"):
        git(repo, "worktree", "add", "-q", "-b", place.name, str(place))
        (place / "f.txt").write_text("changed\n")
        assert await branch(ground, place) == place.name and await status(ground, place) == {"f.txt"}
        session = (await ground.anna.client.post("/session", json={}, headers=at(place))).json()["id"]
        wanted = {"agent": "build", "command": "git -c user.name=a -c user.email=a@b commit -qam second && git log --format=%s"}
        said = await ground.anna.client.post(f"/session/{session}/shell", json=wanted, headers=at(place))
        assert said.json()["parts"][0]["state"]["output"] == "second\nmine\n"


async def test_a_git_directory_of_its_own_place_within_the_roots(ground: Ground) -> None:
    repo = ground.repository()
    git(repo, "init", "-q", f"--separate-git-dir={ground.root / 'store'}")
    assert (repo / ".git").is_file()
    assert await branch(ground, repo) == "main" and await status(ground, repo) == {"f.txt", "unknown.txt"}


async def test_a_submodule_is_a_checkout_of_its_own(ground: Ground) -> None:
    repo, other = ground.repository(), ground.repository()
    git(repo, "submodule", "--quiet", "add", str(other), "sub")
    (repo / "sub" / "g.txt").write_text("changed\n")
    assert await branch(ground, repo / "sub") == "main" and await status(ground, repo / "sub") == {"g.txt"}
    assert await status(ground, repo) == {"f.txt", "unknown.txt", ".gitmodules", "sub"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("is_safe", [True, False])
async def test_a_repository_of_another_user_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_safe: bool
) -> None:
    """It is one where `safe.directory` says so, as on a command line."""
    (tmp_path / "home").mkdir()
    if is_safe:
        (tmp_path / "home" / ".gitconfig").write_text("[safe]\n\tdirectory = *\n")
    async with hostile_ground(tmp_path, monkeypatch) as ground:
        repo = ground.repository()
        subprocess.run(["chown", "-R", "12345:12345", str(repo)], check=True)
        assert await branch(ground, repo) == ("main" if is_safe else "")


async def test_what_the_users_configuration_names_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files elsewhere in the home directory, also by way of others."""
    dotfiles = tmp_path / "home" / "dotfiles"
    dotfiles.mkdir(parents=True)
    (tmp_path / "home" / ".gitconfig").write_text(FIRST)
    (dotfiles / "git").write_text("[core]\n\texcludesFile = ~/dotfiles/ignored\n")
    (dotfiles / "more").write_text('[filter "upper"]\n\tclean = tr a-z A-Z\n[core]attributesFile=~/dotfiles/attributes\n')
    (dotfiles / "ignored").write_text("unknown.txt\n")
    (dotfiles / "attributes").write_text("g.txt filter=upper\n")
    async with hostile_ground(tmp_path, monkeypatch) as ground:
        repo = ground.repository()
        (repo / "g.txt").write_text("mine 5\n")
        shown = (await ground.anna.client.get("/vcs/diff?mode=git", headers=at(repo))).json()
        assert {each["file"] for each in shown} == {"f.txt", "g.txt"}
        assert "+MINE 5" in next(each["patch"] for each in shown if each["file"] == "g.txt")


async def test_filters_of_the_repositorys_own_configuration_are_not_run(ground: Ground) -> None:
    """As `git lfs install --local` leaves them: what differs is seen as it lies there."""
    repo = ground.repository()
    (repo / ".gitattributes").write_text("*.txt filter=large\n")
    for name, value in {"clean": "sed s/2/1/", "smudge": "cat", "required": "true"}.items():
        git(repo, "config", f"filter.large.{name}", value)
    assert await status(ground, repo) == {"f.txt", "unknown.txt", ".gitattributes"}


async def test_a_large_diff(ground: Ground) -> None:
    repo = ground.repository()
    for number in range(300):
        (repo / f"new{number}.txt").write_text(f"line {number}\n" * 200)
    (repo / "f.txt").write_text("".join(f"{number}\n" for number in range(300_000)))
    shown = (await ground.anna.client.get("/vcs/diff?mode=git", headers=at(repo))).json()
    assert len(shown) == 302
    assert next(each["additions"] for each in shown if each["file"] == "f.txt") == 300_000
