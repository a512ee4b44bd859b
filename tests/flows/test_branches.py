"""Clients are told when another branch is checked out in a directory that is in use."""

from pathlib import Path

from git_files import git
from running_app import RunningApp, running_app
from sse_reader import EventReader
from turns import bash, play

UPDATED = "vcs.branch.updated"


async def announced_branch(app: RunningApp, events: EventReader, count: int, **options: str) -> str:
    """The branch that the `count`-th event names, which GET /vcs agrees with."""
    event = await events.until(UPDATED, count=count)
    assert len(events.of_type(UPDATED)) == count
    assert await branch(app, **options) == event.properties["branch"]
    return str(event.properties["branch"])


async def branch(app: RunningApp, **options: str) -> str:
    return str((await app.get("/vcs", params=options))["branch"])


async def test_a_branch_that_is_checked_out_by_hand_or_by_a_tool(app: RunningApp, session: str) -> None:
    async with app.events() as events, app.events("/global/event") as of_all:
        before = await app.get("/vcs")
        git(app.directory, "checkout", "-q", "-b", "by-hand")
        assert await announced_branch(app, events, 1) == "by-hand"
        await play(app, session, bash("git checkout -q -b by/tool"))
        assert await announced_branch(app, events, 2) == "by/tool"
        git(app.directory, "checkout", "-q", "--detach")
        assert await announced_branch(app, events, 3) == ""
        git(app.directory, "commit", "-q", "--allow-empty", "-m", "detached")
        git(app.directory, "checkout", "-q", before["branch"])
        assert await announced_branch(app, events, 4) == before["branch"]
        git(app.directory, "branch", "-m", "renamed")
        assert await branch(app) == "renamed", "a read tells of it too"
        event = await of_all.until(UPDATED, count=5)
    assert event.properties == {"branch": "renamed"} and event.data["directory"] == str(app.directory)


async def test_a_linked_worktree_has_a_branch_of_its_own(tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    async with running_app(tmp_path, roots=str(tmp_path)) as app:
        git(app.directory, "worktree", "add", "-q", "-b", "linked", str(linked))
        async with app.events(directory=str(linked)) as events, app.events() as others:
            assert await branch(app, directory=str(linked)) == "linked"
            git(linked, "checkout", "-q", "-b", "moved")
            assert await announced_branch(app, events, 1, directory=str(linked)) == "moved"
            git(app.directory, "checkout", "-q", "-b", "main-moved")
            assert await announced_branch(app, others, 1) == "main-moved"
        assert len(events.of_type(UPDATED)) == 1
