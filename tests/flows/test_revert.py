"""Revert, unrevert and cleanup through whole turns: a scripted model, real tools, real git."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from git_files import files, git, state
from refused_commits import refused_commits
from revert_steps import DONE, bash, play, revert, turn, unrevert, write
from running_app import RunningApp, make_workspace, running_app
from turns import talking

from app.providers.scripted import ScriptedProvider
from app.schema.message import PromptInput

ALLOW = [{"permission": "*", "pattern": "*", "action": "allow"}]


@pytest.fixture
async def session(app: RunningApp) -> str:
    return str((await app.create_session(title="T", permission=ALLOW))["id"])


def ids(messages: list[dict[str, Any]]) -> list[str]:
    return [message["info"]["id"] for message in messages]


# A whole message.


async def test_a_revert_takes_the_files_back_at_once_and_keeps_the_messages(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo two > a.txt; echo new > b.txt"))
    session_now = await revert(app, session, prompt)
    assert files(app.directory) == {"a.txt": ("file", b"hello\nworld\n", False)}
    assert len(await app.messages(session)) == 3
    assert sorted(session_now["revert"]) == ["diff", "messageID", "snapshot"]
    assert session_now["revert"]["messageID"] == prompt
    assert "-two\n+hello\n+world" in session_now["revert"]["diff"]
    assert session_now["summary"] == {"additions": 2, "deletions": 2, "files": 2}
    diffs = await app.get(f"/session/{session}/diff")
    assert [(diff["file"], diff["before"], diff["after"]) for diff in diffs] == [
        ("a.txt", "hello\nworld\n", "two\n"),
        ("b.txt", "", "new\n"),
    ]
    assert await app.get(f"/session/{session}") == session_now


async def test_unrevert_puts_back_what_revert_touched_and_nothing_else(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo two > a.txt; echo new > b.txt; mkdir d; echo x > d/c.txt"))
    after_turn = files(app.directory)
    before = await app.get(f"/session/{session}")
    await revert(app, session, prompt)
    (app.directory / "mine.txt").write_text("a person's\n")
    (app.directory / "d").mkdir()
    (app.directory / "d" / "mine").write_text("too\n")
    session_now = await unrevert(app, session)
    assert "revert" not in session_now
    assert files(app.directory) == after_turn | {
        "mine.txt": ("file", b"a person's\n", False),
        "d/mine": ("file", b"too\n", False),
    }
    assert session_now["time"]["updated"] >= before["time"]["updated"]


async def test_events_tell_of_revert_and_unrevert(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo two > a.txt"))
    async with app.events() as events:
        await revert(app, session, prompt)
        await unrevert(app, session)
        await events.until("session.updated", count=2)
        told = events.seen[1:]
        assert [event.type for event in told] == ["session.diff", "session.updated", "session.updated"]
        assert "revert" in told[1].properties["info"]
        assert "revert" not in told[2].properties["info"]


async def test_a_second_revert_is_told_of_once_with_its_outcome(app: RunningApp, session: str) -> None:
    """A client that saw a session without a revert meanwhile would show all its messages again."""
    first = await play(app, session, bash("echo 1 > one.txt"))
    second = await play(app, session, bash("echo 2 > two.txt"))
    await revert(app, session, first)
    async with app.events() as events:
        await revert(app, session, second)
        await unrevert(app, session)
        await events.until(lambda event: event.type == "session.updated" and "revert" not in event.properties["info"])
        told = [event.properties["info"] for event in events.seen if event.type == "session.updated"]
    assert [info.get("revert", {}).get("messageID") for info in told] == [second, None]


# A part of a message.


async def part_level(app: RunningApp, session: str) -> tuple[str, str, str]:
    """A turn of three steps; (the second step's message, its text, its call)."""
    app.provider.add([bash("echo 1 > one.txt")], [{"text": "Now two."}, bash("echo 2 > two.txt")], DONE)
    await app.prompt(session, "Do both")
    message = (await app.messages(session))[2]
    assert [part["type"] for part in message["parts"]] == ["step-start", "text", "tool", "step-finish", "patch"]
    return message["info"]["id"], message["parts"][1]["id"], message["parts"][2]["id"]


async def test_a_part_level_revert_keeps_what_came_before_the_part(app: RunningApp, session: str) -> None:
    message, _, call = await part_level(app, session)
    session_now = await revert(app, session, message, partID=call)
    assert (session_now["revert"]["messageID"], session_now["revert"]["partID"]) == (message, call)
    assert "notReverted" not in session_now["revert"]
    assert list(files(app.directory)) == ["a.txt", "one.txt"]
    assert session_now["summary"]["files"] == 1
    await unrevert(app, session)
    assert sorted(files(app.directory)) == ["a.txt", "one.txt", "two.txt"]


async def test_the_next_prompt_removes_from_the_part_on(app: RunningApp, session: str) -> None:
    message, text, call = await part_level(app, session)
    before = await app.messages(session)
    await revert(app, session, message, partID=call)
    async with app.events() as events:
        await app.prompt(session, "Go on")
        await events.until("session.idle")
        removed = [event.properties["partID"] for event in events.of_type("message.part.removed")]
        assert removed == [part["id"] for part in before[2]["parts"][2:]]
        assert [event.properties["messageID"] for event in events.of_type("message.removed")] == ids(before)[3:]
    after = await app.messages(session)
    assert ids(after)[:3] == ids(before)[:3]
    assert [part["id"] for part in after[2]["parts"]] == [before[2]["parts"][0]["id"], text]
    assert len(after) == 5
    assert "revert" not in await app.get(f"/session/{session}")


# Cleanup.


async def reverted(app: RunningApp, session: str) -> list[str]:
    """A session of two turns whose second is reverted; the ids of that turn's messages."""
    await play(app, session, bash("echo 1 > one.txt"))
    second = await play(app, session, bash("echo 2 > two.txt"))
    await revert(app, session, second)
    return ids(await app.messages(session))[3:]


async def test_the_next_prompt_removes_the_reverted_messages_for_good(app: RunningApp, session: str) -> None:
    gone = await reverted(app, session)
    async with app.events() as events:
        await app.prompt(session, "Something else")
        await events.until("session.idle")
        assert [event.properties["messageID"] for event in events.of_type("message.removed")] == gone
        assert events.types.index("message.removed") < events.types.index("message.updated")
    left = await app.messages(session)
    assert not set(gone) & set(ids(left))
    assert len(left) == 5
    assert "revert" not in await app.get(f"/session/{session}")
    assert "two.txt" not in files(app.directory)
    sent = str(app.provider.requests[-1].messages)
    assert "echo 1" in sent
    assert "echo 2" not in sent


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("shell", {"agent": "build", "command": "echo hi"}),
        ("command", {"command": "init", "arguments": ""}),
        ("summarize", {"providerID": "scripted", "modelID": "rules"}),
    ],
)
async def test_shell_command_and_summarize_clean_up_too(app: RunningApp, session: str, route: str, body: dict[str, Any]) -> None:
    gone = await reverted(app, session)
    await app.post(f"/session/{session}/{route}", body)
    left = ids(await app.messages(session))
    assert not set(gone) & set(left)
    assert len(left) == 5
    assert "revert" not in await app.get(f"/session/{session}")


async def test_a_prompt_that_is_refused_cleans_nothing_up(app: RunningApp, session: str) -> None:
    await reverted(app, session)
    await app.prompt(session, "Hi", expect=400, agent="nobody")
    assert len(await app.messages(session)) == 6
    assert "revert" in await app.get(f"/session/{session}")


# Refused.


async def test_a_prompt_that_is_stored_but_not_begun_makes_a_session_busy(app: RunningApp, session: str) -> None:
    """Otherwise it would count as reverted, and vanish with its answer at the next prompt."""
    prompt = await play(app, session, bash("echo two > a.txt"))
    services = app.services
    instance = await services.instances.get(str(app.directory))
    waiting = PromptInput.model_validate({"parts": [{"type": "text", "text": "Wait"}]})
    prompted = await services.store.session_to_prompt(session)
    accepted = await services.prompts.accept(instance, prompted, waiting)
    await revert(app, session, prompt, expect=409)
    await services.prompts.answer(session, accepted)
    await revert(app, session, prompt)


async def test_what_is_unknown_is_404_or_leaves_all_unchanged(app: RunningApp, session: str) -> None:
    await play(app, session, bash("echo two > a.txt"))
    before = await app.get(f"/session/{session}")
    assert await revert(app, session, "msg_unknown") == before
    assert await revert(app, session, "msg_unknown", partID="prt_unknown") == before
    assert await app.get(f"/session/{session}") == before
    assert (app.directory / "a.txt").read_text() == "two\n"
    await revert(app, "ses_unknown", "msg_unknown", expect=404)
    await app.post("/session/ses_unknown/unrevert", expect=404)
    await app.post(f"/session/{session}/revert", {"messageID": "nonsense"}, expect=400)


async def test_an_abort_waits_for_a_revert_that_is_under_way(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo two > a.txt"))
    reverting = asyncio.create_task(revert(app, session, prompt))
    while (app.directory / "a.txt").read_text() == "two\n":
        await asyncio.sleep(0)  # its result is not stored yet
    await app.post(f"/session/{session}/abort")
    session_now = await reverting
    assert session_now["revert"]["messageID"] == prompt
    assert (await app.get(f"/session/{session}"))["revert"] == session_now["revert"]
    assert (app.directory / "a.txt").read_text() == "hello\nworld\n"


# Dry run.


async def test_a_dry_run_shows_the_diff_and_touches_nothing(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo two > a.txt; printf '\\0' > bin; echo x > b.txt; chmod +x b.txt"))
    before, stored, diff = files(app.directory), await app.get(f"/session/{session}"), await app.get(f"/session/{session}/diff")
    index = (app.directory / ".git" / "index").read_bytes()
    async with app.events() as events:
        shown = await revert(app, session, prompt, dryRun=True)
        await asyncio.sleep(0)
        assert events.types == ["server.connected"]
    assert files(app.directory) == before
    assert await app.get(f"/session/{session}") == stored
    assert await app.get(f"/session/{session}/diff") == diff
    assert (app.directory / ".git" / "index").read_bytes() == index
    real = await revert(app, session, prompt)
    assert shown["revert"]["diff"] == real["revert"]["diff"]
    assert shown["summary"] == real["summary"]
    assert "snapshot" not in shown["revert"]
    assert "Binary files" in real["revert"]["diff"]


async def test_a_dry_run_while_a_revert_stands_shows_the_way_from_here(app: RunningApp, session: str) -> None:
    first = await play(app, session, bash("echo 1 > one.txt"))
    second = await play(app, session, bash("echo 2 > two.txt"))
    await revert(app, session, first)
    shown = await revert(app, session, second, dryRun=True)
    assert "+++ b/one.txt" in shown["revert"]["diff"]
    assert "two.txt" not in shown["revert"]["diff"]
    assert list(files(app.directory)) == ["a.txt"]
    assert (await app.get(f"/session/{session}"))["revert"]["messageID"] == first


# What cannot be taken back.


def reasons(session_now: dict[str, Any]) -> dict[str, str]:
    return {item["file"]: item["reason"] for item in session_now["revert"].get("notReverted", [])}


async def test_a_file_that_is_too_large_for_a_snapshot_is_named(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("head -c 3000000 /dev/zero > big.bin; echo two > a.txt"))
    shown = await revert(app, session, prompt, dryRun=True)
    session_now = await revert(app, session, prompt)
    assert reasons(session_now) == reasons(shown) == {"big.bin": "it is larger than 2 MiB"}
    assert (app.directory / "a.txt").read_text() == "hello\nworld\n"
    (app.directory / "big.bin").write_text("small now, and a person's\n")
    await unrevert(app, session)
    assert (app.directory / "a.txt").read_text() == "two\n"
    assert (app.directory / "big.bin").read_text() == "small now, and a person's\n"


async def test_an_ignored_file_that_was_edited_is_named_and_left(app: RunningApp, session: str) -> None:
    (app.directory / ".gitignore").write_text("*.log\n")
    prompt = await play(app, session, write(app.directory / "run.log", "x\n"), bash("echo two > a.txt; echo y > unseen.log"))
    shown = await revert(app, session, prompt, dryRun=True)
    session_now = await revert(app, session, prompt)
    assert list(reasons(session_now)) == ["run.log"]
    assert "is ignored" in reasons(session_now)["run.log"]
    assert reasons(shown) == reasons(session_now)
    assert (app.directory / "run.log").read_text() == "x\n"
    assert (app.directory / "a.txt").read_text() == "hello\nworld\n"


async def test_an_edited_file_outside_the_checkout_is_named_and_left(app: RunningApp, session: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    prompt = await play(app, session, write(outside, "x\n"))
    session_now = await revert(app, session, prompt)
    assert list(reasons(session_now)) == [str(outside)]
    assert outside.read_text() == "x\n"


async def test_a_file_that_became_ignored_since_is_reverted_all_the_same(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo x > run.log; echo two > a.txt"))
    (app.directory / ".gitignore").write_text("*.log\n")
    assert reasons(await revert(app, session, prompt)) == {}
    assert not (app.directory / "run.log").exists()
    await unrevert(app, session)
    assert (app.directory / "run.log").read_text() == "x\n"


async def test_a_file_that_cannot_be_restored_is_reported(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("mkdir d; echo x > d/f; echo two > a.txt"))
    await revert(app, session, prompt)
    (app.directory / "d").write_text("a person's file where the directory was\n")
    async with app.events() as events:
        await unrevert(app, session)
        session_now = await events.until("session.error")
    assert str(app.directory / "d" / "f") in session_now.properties["error"]["data"]["message"]
    assert (app.directory / "a.txt").read_text() == "two\n"
    assert (app.directory / "d").read_text() == "a person's file where the directory was\n"


async def test_when_nothing_can_be_put_back_the_revert_stands(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("mkdir d; echo x > d/f"))
    await revert(app, session, prompt)
    (app.directory / "d").write_text("in the way\n")
    refused = await app.post(f"/session/{session}/unrevert", expect=500)
    assert refused["name"] == "SnapshotError"
    assert "revert" in await app.get(f"/session/{session}")
    (app.directory / "d").unlink()
    await unrevert(app, session)
    assert state(app.directory / "d" / "f") == ("file", b"x\n", False)


async def test_with_snapshots_switched_off_the_files_are_named(tmp_path: Path) -> None:
    make_workspace(tmp_path / "workspace")
    (tmp_path / "workspace" / "opencode.json").write_text('{"snapshot": false}')
    async with talking(tmp_path) as (app, session):
        prompt = await play(app, session, write(app.directory / "b.txt", "new\n"), bash("echo x > c.txt"))
        shown = await revert(app, session, prompt, dryRun=True)
        session_now = await revert(app, session, prompt)
        assert list(reasons(session_now)) == list(reasons(shown)) == ["b.txt", "bash"]
        assert "snapshot" not in session_now["revert"]
        assert (app.directory / "b.txt").exists() and (app.directory / "c.txt").exists()
        await app.prompt(session, "Something else")
        assert len(await app.messages(session)) == 2


def break_snapshots(app: RunningApp) -> Path:
    """No git can work here: a file stands where the repositories of snapshots go."""
    place = app.data_dir / "snapshot"
    if place.exists():
        place.rename(app.data_dir / "snapshot-away")
    place.write_text("in the way\n")
    return place


def mend_snapshots(place: Path) -> None:
    place.unlink()
    place.with_name("snapshot-away").rename(place)


async def test_when_snapshots_fail_the_turn_goes_on_and_revert_is_refused(app: RunningApp, session: str) -> None:
    first = await play(app, session, bash("echo 1 > one.txt"))
    place = break_snapshots(app)
    second = await play(app, session, bash("echo 2 > two.txt"))
    steps = [part for message in (await app.messages(session))[3:] for part in message["parts"]]
    assert not any(part.get("snapshot") for part in steps)
    assert "patch" not in [part["type"] for part in steps]
    for wanted in (first, second):
        refused = await revert(app, session, wanted, expect=500)
        assert refused["name"] == "SnapshotError"
        assert refused["data"]["message"]
    assert sorted(files(app.directory)) == ["a.txt", "one.txt", "two.txt"]
    assert "revert" not in await app.get(f"/session/{session}")
    mend_snapshots(place)
    session_now = await revert(app, session, first)
    assert list(reasons(session_now)) == ["bash"]
    assert sorted(files(app.directory)) == ["a.txt", "two.txt"]


async def test_a_damaged_index_of_the_snapshots_does_not_stop_a_revert(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo two > a.txt"))
    for index in app.data_dir.glob("snapshot/*/*/index"):
        index.write_bytes(b"no index")
    await revert(app, session, prompt)
    assert (app.directory / "a.txt").read_text() == "hello\nworld\n"


async def test_snapshots_that_are_gone_leave_the_files_and_say_so(app: RunningApp, session: str) -> None:
    """As seven days later, when they are no longer kept."""
    prompt = await play(app, session, bash("echo two > a.txt"))
    shutil.rmtree(app.data_dir / "snapshot")
    session_now = await revert(app, session, prompt)
    assert list(reasons(session_now)) == ["a.txt"]
    assert (app.directory / "a.txt").read_text() == "two\n"


# Kinds of files.

CHANGES = {
    "a rename": "mv a.txt moved.txt",
    "a rename into a new directory": "mkdir -p x/y && mv a.txt x/y/a.txt",
    "a deletion": "rm a.txt",
    "binary content": "printf '\\000\\001\\377' > a.txt; printf '\\000' > new.bin",
    "names beyond ASCII": "echo x > 日本語.txt; echo y > 'with space é.txt'; echo z > '-dash'",
    "CRLF": "printf 'one\\r\\ntwo\\r\\n' > a.txt",
    "the executable bit": "chmod +x a.txt; echo x > run.sh; chmod +x run.sh",
    "a symbolic link": "ln -s a.txt link; ln -s /nowhere dangling",
    "a file replaced by a link": "rm a.txt; ln -s /etc/hostname a.txt",
    "a file replaced by a directory": "rm a.txt; mkdir a.txt; echo x > a.txt/inside",
    "a file created and deleted in one turn": "echo x > gone.txt; rm gone.txt",
    "a file emptied": ": > a.txt",
}


@pytest.mark.parametrize("command", CHANGES.values(), ids=CHANGES.keys())
async def test_revert_and_unrevert_are_exact_for(app: RunningApp, session: str, command: str) -> None:
    before = files(app.directory)
    prompt = await play(app, session, bash(command))
    after = files(app.directory)
    session_now = await revert(app, session, prompt)
    assert files(app.directory) == before
    assert reasons(session_now) == {}
    await unrevert(app, session)
    assert files(app.directory) == after


async def test_read_and_write_permissions_of_a_file_stay(app: RunningApp, session: str) -> None:
    (app.directory / "a.txt").chmod(0o600)
    prompt = await play(app, session, bash("echo two > a.txt"))
    await revert(app, session, prompt)
    assert (app.directory / "a.txt").stat().st_mode & 0o777 == 0o600


async def test_the_projects_own_repository_is_untouched(app: RunningApp, session: str) -> None:
    def of_git() -> dict[str, bytes]:
        inside = (path for path in (app.directory / ".git").rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in inside}

    before = of_git()
    prompt = await play(app, session, bash("echo two > a.txt; echo x > b.txt"))
    await revert(app, session, prompt)
    await unrevert(app, session)
    assert {name: content for name, content in of_git().items() if not name.endswith("/opencode")} == before


# Places.


async def test_in_a_subdirectory_only_that_is_covered(app: RunningApp) -> None:
    below = app.directory / "sub"
    below.mkdir()
    (below / "b.txt").write_text("below\n")
    where = {"directory": str(below)}
    session = (await app.post("/session", {}, params=where))["id"]
    app.provider.add(*turn(bash("echo two > b.txt; echo new > c.txt")))
    answer = await app.post(f"/session/{session}/message", {"parts": [{"type": "text", "text": "Do it"}]}, params=where)
    (app.directory / "a.txt").write_text("a person's\n")
    session_now = await revert(app, session, answer["info"]["parentID"])
    assert files(app.directory) == {"a.txt": ("file", b"a person's\n", False), "sub/b.txt": ("file", b"below\n", False)}
    assert [diff["file"] for diff in await app.get(f"/session/{session}/diff")] == ["sub/b.txt", "sub/c.txt"]
    assert "a/sub/b.txt" in session_now["revert"]["diff"]
    await unrevert(app, session)
    assert state(below / "c.txt") == ("file", b"new\n", False)


async def test_with_a_submodule_whose_files_stay_its_own(tmp_path: Path) -> None:
    library = make_workspace(tmp_path / "library")
    workspace = make_workspace(tmp_path / "workspace")
    git(workspace, "submodule", "add", "-q", str(library), "lib")
    git(workspace, "commit", "-qm", "with a submodule")
    async with talking(tmp_path) as (app, session):
        prompt = await play(app, session, bash("echo two > a.txt; echo two > lib/a.txt"))
        await revert(app, session, prompt)
        assert state(workspace / "a.txt") == ("file", b"hello\nworld\n", False)
        assert state(workspace / "lib" / "a.txt") == ("file", b"two\n", False)


async def test_through_a_symbolic_link_to_the_checkout(tmp_path: Path) -> None:
    make_workspace(tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    async with talking(tmp_path, workspace=tmp_path / "link") as (app, session):
        prompt = await play(app, session, bash("echo two > a.txt"))
        session_now = await revert(app, session, prompt)
        assert (tmp_path / "real" / "a.txt").read_text() == "hello\nworld\n"
        assert session_now["summary"]["files"] == 1


# Other ways of changing files.


async def test_what_a_subagent_changed_is_reverted_with_the_turn_that_started_it(tmp_path: Path) -> None:
    provider = ScriptedProvider()
    task = {"tool": "task", "args": {"description": "look", "prompt": "write it", "subagent_type": "general"}}
    provider.add([task], [bash("echo sub > sub.txt")], DONE, DONE)
    async with talking(tmp_path, provider=provider) as (app, session):
        prompt = (await app.prompt(session, "Delegate"))["info"]["parentID"]
        assert (app.directory / "sub.txt").read_text() == "sub\n"
        session_now = await revert(app, session, prompt)
        assert reasons(session_now) == {}
        assert list(files(app.directory)) == ["a.txt"]


async def test_what_an_aborted_step_had_changed_is_reverted_too(app: RunningApp, session: str) -> None:
    app.provider.add([bash("echo two > a.txt; touch started; sleep 60")])
    answering = asyncio.create_task(app.prompt(session, "Do it"))
    async with asyncio.timeout(60):
        while not (app.directory / "started").exists():
            await asyncio.sleep(0.01)
    await app.post(f"/session/{session}/abort")
    prompt = (await answering)["info"]["parentID"]
    await revert(app, session, prompt)
    assert files(app.directory) == {"a.txt": ("file", b"hello\nworld\n", False)}


async def test_a_revert_survives_a_restart(tmp_path: Path) -> None:
    async with talking(tmp_path) as (app, session):
        prompt = await play(app, session, bash("echo two > a.txt"))
        await revert(app, session, prompt)
    async with running_app(tmp_path) as app:
        assert (await app.get(f"/session/{session}"))["revert"]["messageID"] == prompt
        await unrevert(app, session)
        assert (app.directory / "a.txt").read_text() == "two\n"


# An end that the database refuses to store: files and session agree, whatever is answered.


async def changed_file(app: RunningApp) -> tuple[str, str]:
    """The session, and its prompt that changed a.txt."""
    session = (await app.create_session(title="T", permission=ALLOW))["id"]
    return session, await play(app, session, bash("echo two > a.txt"))


def text(app: RunningApp) -> str:
    return (app.directory / "a.txt").read_text()


async def ask(app: RunningApp, session: str, way: str, **body: Any) -> int:
    return (await app.client.post(f"/session/{session}/{way}", json=body)).status_code


async def test_a_revert_whose_end_is_refused_for_a_moment_is_stored_after_it(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session, prompt = await changed_file(app)
        refusals = iter(range(3))
        with refused_commits() as commits:
            commits.when = lambda: text(app) == "hello\nworld\n" and next(refusals, None) is not None
            assert await ask(app, session, "revert", messageID=prompt) == 200
        assert (await app.get(f"/session/{session}"))["revert"]["messageID"] == prompt
        assert next(refusals, None) is None


@pytest.mark.parametrize("way", ["revert", "unrevert"])
async def test_what_is_refused_for_long_leaves_the_files_as_the_session_says(tmp_path: Path, way: str) -> None:
    async with running_app(tmp_path) as app:
        session, prompt = await changed_file(app)
        before = await app.messages(session)
        if way == "unrevert":
            assert await ask(app, session, "revert", messageID=prompt) == 200
        seen = text(app)

        def has_begun() -> bool:
            commits.refuses = commits.refuses or text(app) != seen
            return commits.refuses

        with refused_commits() as commits:
            commits.when = has_begun
            assert await ask(app, session, way, messageID=prompt) == 503
            assert text(app) == "two\n"
        await app.prompt(session, "And now?")
        assert (await app.messages(session))[: len(before)] == before
        assert "revert" not in await app.get(f"/session/{session}")
        assert text(app) == "two\n"


async def test_a_revert_that_is_refused_gives_no_answer_to_a_message_that_asked_for_none(tmp_path: Path) -> None:
    async with talking(tmp_path, title="T") as (app, session):
        kept = (await app.prompt(session, "Keep this", noReply=True))["info"]["id"]
        with refused_commits() as commits:
            commits.starts_with = '"revert"'
            assert await ask(app, session, "revert", messageID=kept) == 503
        assert not app.services.live.get(session).unstored_end
