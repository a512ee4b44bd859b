"""Repositories that harm who looks at them, tried by a member: nothing of others shows, nothing outside changes, and where a
repository is only looked at nothing of it runs."""

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from figures import Figure
from git_files import git, put_file
from hostile_ground import Ground, at, hostile_ground, leaks, make_repository
from hostile_repositories import LEADING_OUT, RUNNING, configure, flipping, put_away
from long_form import LONG
from polling import until
from running_app import text_part
from sandboxed import needs_sandbox
from user_logins import user

from app.providers.base import ModelRequest
from app.providers.scripted import ScriptedTurn, parse_turn

WALLS = [pytest.param("require", marks=needs_sandbox, id="sandbox"), pytest.param("off", id="without")]
AT_ONCE = 8
TRIES = 40 if LONG else 6
WORKTREES = "/experimental/worktree"
ALLOWED = {"permission": [{"permission": "*", "pattern": "*", "action": "allow"}]}


@pytest.fixture(params=WALLS)
async def ground(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ground]:
    async with hostile_ground(tmp_path, monkeypatch, sandbox=request.param) as made:
        yield made


@pytest.fixture
async def walled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ground]:
    async with hostile_ground(tmp_path, monkeypatch) as made:
        yield made


async def test_a_repository_that_is_only_looked_at_runs_nothing_and_leads_nowhere(ground: Ground, figure: Figure) -> None:
    """One that nobody has opened, and one that is in use; the short form takes turns."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def looked_at(name: str, is_open: bool) -> str:
        async with turn:
            repo = ground.repository()
            if is_open:
                assert "main" in await ground.get(repo, "/vcs")
            (RUNNING | LEADING_OUT)[name](ground, repo)
            return "".join([await ground.read(place) for place in (repo, repo / "sub") if place.is_dir()])

    for attacks in (RUNNING, LEADING_OUT):
        cases = [(name, is_open) for name in attacks for is_open in (False, True)]
        tried = [case for number, case in enumerate(cases) if LONG or number % 4 in (0, 3)]
        said = await asyncio.gather(*(looked_at(*case) for case in tried))
        found = {case: leaks(text) for case, text in zip(tried, said, strict=True) if leaks(text)}
        assert found == {} and ground.marks() == [] and ground.changed() == []
    figure(f"{len(RUNNING)} kinds of repositories that name programs were looked at: 0 ran")
    figure(f"{len(LEADING_OUT)} kinds of repositories that lead out: 0 texts or names of others in the answers")


CERTAIN = ("names core.fsmonitor", "filter.evil.clean", "textconv", "external diff", "names diff.external", "config.worktree",
           "included filter", "included in a line", "included in a chain", "submodule", "hook post-index-change")  # fmt: skip


def test_programs_of_such_repositories_do_run_otherwise(tmp_path: Path) -> None:
    """That nothing ran above says something: git on a command line runs what these name."""
    ground = Ground(tmp_path, None, None)
    ground.outside.mkdir()
    for name in CERTAIN:
        repo = ground.repository()
        RUNNING[name](ground, repo)
        for command in (["status"], ["diff", "HEAD"], ["add", "f.txt"]):
            subprocess.run(["git", *command], cwd=repo, capture_output=True, check=False)
        assert (ground.outside / f"ran-{repo.name}").exists() or (repo / "sub" / "ran-sub").exists(), name


async def test_filters_that_come_and_go_run_nowhere_outside(walled: Ground) -> None:
    """A race between what lists them and what runs git: it may be won within the repository, never outside."""
    repo = walled.repository()
    plain, evil = repo.parent / "plain", repo.parent / "evil"
    shutil.copy(repo / ".git" / "config", plain)
    RUNNING["all filters"](walled, repo)
    shutil.copy(repo / ".git" / "config", evil)
    with flipping(repo / ".git" / "config", plain, evil):
        for _ in range(TRIES):
            await walled.read(repo)
    assert list(walled.outside.iterdir()) == [] and walled.changed() == []


async def test_a_git_directory_that_comes_and_goes_shows_nothing(walled: Ground) -> None:
    for target in ("roots/bert/.git", "data/kept/.git", "roots/bert/.git/worktrees/linked"):
        repo = walled.repository()
        own, other, git_dir = (Path(f"{repo}-{name}") for name in ("to own", "to other", "git"))
        (repo / ".git").rename(git_dir)
        own.symlink_to(git_dir)
        other.symlink_to(walled.base / target)
        (repo / ".git").symlink_to(git_dir)
        with flipping(repo / ".git", own, other):
            answers = [await walled.read(repo) for _ in range(TRIES)]
        assert leaks("".join(answers)) == [] and walled.changed() == [], target


# Worktrees.

WORKTREE_PLACES = (
    "worktrees", "worktrees/NAME", "worktrees/NAME/gitdir", "worktrees/NAME/logs", "worktrees/NAME/logs/HEAD", "config",
    "worktrees/NAME/index", "worktrees/NAME/HEAD", "worktrees/NAME/refs", "config.worktree", "HEAD", "logs", "logs/HEAD", "refs",
    "logs/refs/heads/opencode", "refs/heads", "refs/heads/opencode", "packed-refs", "objects", "info", "index", "hooks", "",
)  # fmt: skip
TARGETS = ("victim", "victim/HEAD", "roots/bert/.git", "home")


async def test_worktrees_change_nothing_through_links(ground: Ground, figure: Figure) -> None:
    """Each is made, has a link put into its repository, and is reset and removed; then one is made through the link."""
    cases = [(place, target) for place in WORKTREE_PLACES for target in TARGETS][:: 1 if LONG else 5]
    for place, target in cases:
        repo = ground.repository()
        worktree = await made(ground, repo)
        path = repo / ".git" / place.replace("NAME", worktree.name) if place else repo / ".git"
        put_away(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(ground.base / target)
        await used(ground, repo, worktree)
        assert (ground.changed(), place, target) == ([], place, target)
    figure(f"{len(cases)} worktrees with links in their repository: 0 files outside changed")


async def test_worktrees_of_another_repository_change_nothing(ground: Ground) -> None:
    """The worktree's own `.git` becomes another thing."""

    def own(worktree: Path, repo: Path, *settings: tuple[str, str]) -> None:
        put_away(worktree / ".git")
        shutil.copytree(repo / ".git", worktree / ".git", symlinks=True)
        for name, value in settings:
            git(worktree, "config", "--file", ".git/config", name, value)

    def other(worktree: Path, target: str, *, is_link: bool = False) -> None:
        (worktree / ".git").unlink()
        if is_link:
            (worktree / ".git").symlink_to(ground.base / target)
        else:
            (worktree / ".git").write_text(f"gitdir: {ground.base / target}\n")

    home, evil = str(ground.base / "home"), ("filter.evil.smudge", f"touch {ground.outside}/ran-smudge")
    changes: list[Callable[[Path, Path], None]] = [
        lambda worktree, repo: own(worktree, repo, ("core.worktree", home)),
        lambda worktree, repo: own(worktree, repo, ("core.worktree", str(ground.bert)), evil),
        lambda worktree, repo: other(worktree, "roots/bert/.git"),
        lambda worktree, repo: other(worktree, "roots/bert/.git/worktrees/linked"),
        lambda worktree, repo: other(worktree, "roots/bert/.git", is_link=True),
        lambda worktree, repo: other(worktree, "roots/bert/linked/.git", is_link=True),
        lambda worktree, repo: git(repo, "config", "core.worktree", home) and None,
        lambda worktree, repo: configure(repo, "core.worktree", home),
    ]
    for change in changes:
        repo = ground.repository()
        worktree = await made(ground, repo)
        change(worktree, repo)
        await used(ground, repo, worktree)
        assert ground.changed() == [] and leaks(await ground.read(repo)) == []


async def test_a_worktree_that_never_was_removes_nothing(ground: Ground) -> None:
    repo = ground.repository()
    project = json.loads(await ground.get(repo, "/project/current"))["id"]
    (repo / ".git" / "worktrees").symlink_to(ground.victim)
    for name in ("never", "deep", "..", "../../victim", "linked"):
        directory = f"{ground.base}/data/worktree/{project}/{name}"
        await ground.ask("DELETE", repo, WORKTREES, {"directory": directory})
    for directory in (str(ground.victim), str(ground.bert / "linked"), f"{repo}/.git/worktrees/deep"):
        status, _ = await ground.ask("DELETE", repo, WORKTREES, {"directory": directory})
        assert status == 400
    assert ground.changed() == []


async def test_another_members_worktree_is_out_of_reach(ground: Ground) -> None:
    """A `.git` file that names a worktree which the server made of another's repository."""
    async with user(ground.app, "gina", roots=[ground.base / "roots" / "gina"]) as gina:
        theirs = make_repository(ground.base / "roots" / "gina" / "repo", "canary-of-victim")
        created = await gina.client.post(WORKTREES, json={"name": "theirs", "startCommand": "touch .ready"}, headers=at(theirs))
        await filled(Path(created.json()["directory"]))
        for target in (created.json()["directory"] + "/.git", f"{theirs}/.git/worktrees/theirs"):
            for kind in ("link", "file"):
                repo = ground.repository()
                put_away(repo / ".git")
                if kind == "link":
                    (repo / ".git").symlink_to(target)
                else:
                    (repo / ".git").write_text(f"gitdir: {target}\n")
                assert leaks(await ground.read(repo)) == [], (target, kind)
                status, _ = await ground.ask("POST", repo, WORKTREES, {"name": "stolen"})
                assert status >= 400 and "stolen" not in git(theirs, "branch", "--list", "opencode/*")


async def made(ground: Ground, repo: Path) -> Path:
    status, text = await ground.ask("POST", repo, WORKTREES, {"name": "mine", "startCommand": "touch .ready"})
    assert status == 200, text
    directory = Path(json.loads(text)["directory"])
    await filled(directory)
    return directory


async def filled(directory: Path) -> None:
    await until((directory / ".ready").exists)


async def used(ground: Ground, repo: Path, worktree: Path) -> None:
    """Whatever comes of it."""
    await ground.ask("POST", repo, f"{WORKTREES}/reset", {"directory": str(worktree)})
    await ground.ask("DELETE", repo, WORKTREES, {"directory": str(worktree)})
    await ground.ask("POST", repo, WORKTREES, {"name": "again"})


async def test_a_repository_is_made_where_there_is_nothing(ground: Ground) -> None:
    deep = ground.victim / "deep"
    made: dict[str, Callable[[Path], object]] = {
        "link": lambda entry: entry.symlink_to(ground.victim / "link"),
        "dangling": lambda entry: entry.symlink_to(ground.victim / "dangling"),
        "gitfile": lambda entry: entry.write_text(f"gitdir: {deep}\n"),
        "fifo": os.mkfifo,
        "to a folder": lambda entry: entry.symlink_to(deep),
    }
    for kind, make in made.items():
        place = ground.root / kind
        place.mkdir()
        make(place / ".git")
        status, _ = await ground.ask("POST", place, "/project/git/init")
        assert status >= 400 and ground.changed() == [], kind


# Files that never end.

FIFOS = ("config", "HEAD", "commondir", "index", "info/exclude", "info/attributes", "objects/info/alternates", "packed-refs")


async def test_files_that_never_end_hold_up_nobody(ground: Ground, figure: Figure) -> None:
    """Each is tried on a repository that nobody has opened, and on one that is in use."""
    repos = []
    for name in FIFOS:
        for is_open in (False, True):
            repo = ground.repository()
            if is_open:
                await ground.get(repo, "/vcs")
            path = repo / ".git" / name
            path.parent.mkdir(exist_ok=True)
            path.unlink(missing_ok=True)
            os.mkfifo(path)
            repos.append(repo)
    began = time.monotonic()
    reading = [asyncio.create_task(ground.read(repo, ("/vcs", "/vcs/status", "/vcs/diff?mode=git"))) for repo in repos]
    async with user(ground.app, "emma", roots=[ground.base / "roots" / "emma"]) as emma:
        theirs = make_repository(ground.base / "roots" / "emma" / "repo", "hers")
        changed = await emma.client.get("/vcs/status", headers=at(theirs))
        waited = time.monotonic() - began
    assert {each["file"] for each in changed.json()} == {"f.txt", "unknown.txt"}
    await asyncio.gather(*reading)
    whole = time.monotonic() - began
    figure(f"/vcs/status beside {len(repos)} repositories with a FIFO: {waited:.1f} s; all of theirs: {whole:.1f} s")
    assert whole < 50, "no git waited for its time limit"


# Turns.


async def test_a_turn_in_such_a_repository_stays_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots before and after each step, diffs and a revert, with repositories nested in it, filters, and links."""
    async with hostile_ground(tmp_path, monkeypatch, model=writes_a_file) as walled:
        for name in ("nested", "submodule", "all filters", "included filter", "config.worktree", "hook post-index-change"):
            repo = walled.repository()
            await turned(walled, repo, lambda repo, name=name: RUNNING[name](walled, repo))
            assert not list(walled.outside.iterdir()), name
        for name in ("alternates", "HEAD is a link to bert's", "objects is a link to bert's", "core.worktree is roots/bert",
                     "core.worktree is data/kept", "core.excludesFile is bert's file", ".git is a link to bert",
                     "a submodule's gitfile"):  # fmt: skip
            repo = walled.repository()
            told = await turned(walled, repo, lambda repo, name=name: LEADING_OUT[name](walled, repo))
            assert leaks(told) == [] and walled.changed() == [], name


async def test_a_turn_around_such_repositories_stays_in_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same in a directory without git, which has the repository in it."""
    async with hostile_ground(tmp_path, monkeypatch, model=writes_a_file) as walled:
        for number, (name, attack) in enumerate([*RUNNING.items(), *LEADING_OUT.items()]):
            if not LONG and number % 4:
                continue
            repo, plain = walled.repository(), walled.root / f"plain{number}"
            put_file(plain / "f.txt", "mine\n")
            attack(walled, repo)
            told = await turned(walled, plain, lambda plain, repo=repo: repo.rename(plain / "sub"))
            assert (plain / "f.txt").read_text() == "mine\n", name
            assert leaks(told) == [] and walled.changed() == [] and not list(walled.outside.iterdir()), name


def writes_a_file(request: ModelRequest) -> ScriptedTurn:
    if request.messages[-1].role == "user":
        return parse_turn([{"tool": "bash", "args": {"command": "echo x >> f.txt; ls -a . sub; cat sub/*", "description": "x"}}])
    return parse_turn([{"text": "Done."}])


async def turned(ground: Ground, repo: Path, attack: Callable[[Path], None]) -> str:
    """A turn, the attack, another turn and a revert: all that was told of it."""
    session = json.loads((await ground.ask("POST", repo, "/session", ALLOWED))[1])["id"]
    said = [await prompted(ground, repo, session)]
    attack(repo)
    said += [await prompted(ground, repo, session), await ground.get(repo, f"/session/{session}/diff")]
    messages = json.loads(await ground.get(repo, f"/session/{session}/message"))
    first = next(message["info"]["id"] for message in messages if message["info"]["role"] == "user")
    said.append((await ground.ask("POST", repo, f"/session/{session}/revert", {"messageID": first}))[1])
    return "\n".join([*said, json.dumps(messages)])


async def prompted(ground: Ground, repo: Path, session: str) -> str:
    return (await ground.ask("POST", repo, f"/session/{session}/message", {"parts": [text_part("Go on")]}))[1]
