"""Revert, unrevert and cleanup through whole turns: a scripted model, real tools, real git."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from git_files import files, git, put_file, state
from obstacles import endless_links
from refused_commits import refused_commits
from running_app import RunningApp, make_workspace, running_app, text_part
from turns import ALLOW, DONE, bash, infos, play, revert, say, talking, task, types, unrevert, until, write

from app.record.repositories import work_rows
from app.schema.message import PromptInput

ORIGINAL = ("file", b"hello\nworld\n", False)


@pytest.fixture
async def session(app: RunningApp) -> str:
    return str((await app.create_session(title="T", permission=ALLOW))["id"])


async def ids(app: RunningApp, session: str) -> list[str]:
    return [message["info"]["id"] for message in await app.messages(session)]


def text(app: RunningApp) -> str:
    return (app.directory / "a.txt").read_text()


async def standing(app: RunningApp, session: str) -> dict[str, Any] | None:
    """The revert that is in force."""
    return (await app.get(f"/session/{session}")).get("revert")


async def test_a_revert_takes_the_files_back_at_once_and_keeps_the_messages(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo two > a.txt; echo new > b.txt"))
    session_now = await revert(app, session, prompt)
    assert files(app.directory) == {"a.txt": ORIGINAL}
    assert len(await app.messages(session)) == 3
    assert sorted(session_now["revert"]) == ["diff", "messageID", "snapshot"]
    assert session_now["revert"]["messageID"] == prompt
    assert "-two\n+hello\n+world" in session_now["revert"]["diff"]
    assert session_now["summary"] == {"additions": 2, "deletions": 2, "files": 2}
    changed = [(diff["file"], diff["before"], diff["after"]) for diff in await app.get(f"/session/{session}/diff")]
    assert changed == [("a.txt", "hello\nworld\n", "two\n"), ("b.txt", "", "new\n")]
    assert await app.get(f"/session/{session}") == session_now


async def test_who_has_the_answer_may_ask_another_server_next(
    app: RunningApp, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = await play(app, session, bash("echo two > a.txt"))
    database = app.services.database
    write = database.write

    async def slow(work: Any) -> Any:
        await asyncio.sleep(0.05)
        return await write(work)

    monkeypatch.setattr(database, "write", slow)
    for ask in (revert(app, session, prompt), unrevert(app, session)):
        await ask
        lease = await database.read(lambda connection: work_rows.lease_of(connection, session))
        assert lease is not None and lease.owner == "", "the session is free"


async def test_unrevert_puts_back_what_revert_touched_and_nothing_else_and_events_tell_of_both(
    app: RunningApp, session: str
) -> None:
    prompt = await play(app, session, bash("echo two > a.txt; echo new > b.txt; mkdir d; echo x > d/c.txt"))
    after_turn, before = files(app.directory), await app.get(f"/session/{session}")
    async with app.events() as events:
        await revert(app, session, prompt)
        (app.directory / "mine.txt").write_text("a person's\n")
        put_file(app.directory / "d" / "mine", "too\n")
        session_now = await unrevert(app, session)
        await events.until("session.updated", count=2)
    own = {"mine.txt": ("file", b"a person's\n", False), "d/mine": ("file", b"too\n", False)}
    assert "revert" not in session_now and files(app.directory) == after_turn | own
    assert session_now["time"]["updated"] >= before["time"]["updated"]
    told = [event for event in events.seen if event.type.startswith("session.")]
    assert [event.type for event in told] == ["session.diff", "session.updated", "session.updated"]
    assert ["revert" in event.properties["info"] for event in told[1:]] == [True, False]


async def test_a_second_revert_shows_the_way_from_here_and_is_told_of_once_with_its_outcome(
    app: RunningApp, session: str
) -> None:
    """A client that saw a session without a revert meanwhile would show all its messages again."""
    first = await play(app, session, bash("echo 1 > one.txt"))
    second = await play(app, session, bash("echo 2 > two.txt"))
    await revert(app, session, first)
    shown = await revert(app, session, second, dryRun=True)
    assert "+++ b/one.txt" in shown["revert"]["diff"] and "two.txt" not in shown["revert"]["diff"]
    assert list(files(app.directory)) == ["a.txt"]
    assert (await standing(app, session) or {})["messageID"] == first
    async with app.events() as events:
        await revert(app, session, second)
        await unrevert(app, session)
        await events.until(lambda event: event.type == "session.updated" and "revert" not in event.properties["info"])
        told = [event.properties["info"] for event in events.of_type("session.updated")]
    assert [info.get("revert", {}).get("messageID") for info in told] == [second, None]


async def test_a_part_level_revert_keeps_what_came_before_it_and_the_next_prompt_removes_the_rest(
    app: RunningApp, session: str
) -> None:
    app.provider.add([bash("echo 1 > one.txt")], [say("Now two."), bash("echo 2 > two.txt")], DONE)
    await app.prompt(session, "Do both")
    before, before_ids = await app.messages(session), await ids(app, session)
    assert types(before[2]) == ["step-start", "text", "tool", "step-finish", "patch"]
    message, call = before[2]["info"]["id"], before[2]["parts"][2]["id"]
    for _ in range(2):
        session_now = await revert(app, session, message, partID=call)
        assert (session_now["revert"]["messageID"], session_now["revert"]["partID"]) == (message, call)
        assert "notReverted" not in session_now["revert"] and session_now["summary"]["files"] == 1
        assert list(files(app.directory)) == ["a.txt", "one.txt"]
        await unrevert(app, session)
        assert sorted(files(app.directory)) == ["a.txt", "one.txt", "two.txt"]
    await revert(app, session, message, partID=call)
    async with app.events() as events:
        await app.prompt(session, "Go on")
        await events.until("session.idle")
    removed = [event.properties["partID"] for event in events.of_type("message.part.removed")]
    assert removed == [part["id"] for part in before[2]["parts"][2:]]
    assert [event.properties["messageID"] for event in events.of_type("message.removed")] == before_ids[3:]
    after = await app.messages(session)
    assert (await ids(app, session))[:3] == before_ids[:3] and len(after) == 5
    assert after[2]["parts"] == before[2]["parts"][:2]
    assert await standing(app, session) is None


async def reverted(app: RunningApp, session: str) -> list[str]:
    """A session of two turns whose second is reverted; the ids of that turn's messages."""
    await play(app, session, bash("echo 1 > one.txt"))
    await revert(app, session, await play(app, session, bash("echo 2 > two.txt")))
    return (await ids(app, session))[3:]


async def test_the_next_prompt_removes_the_reverted_messages_for_good(app: RunningApp, session: str) -> None:
    gone = await reverted(app, session)
    await app.prompt(session, "Hi", expect=400, agent="nobody")
    assert len(await app.messages(session)) == 6 and await standing(app, session), "one that is refused cleans nothing up"
    async with app.events() as events:
        await app.prompt(session, "Something else")
        await events.until("session.idle")
    assert [event.properties["messageID"] for event in events.of_type("message.removed")] == gone
    assert events.types.index("message.removed") < events.types.index("message.updated")
    left = await ids(app, session)
    assert not set(gone) & set(left) and len(left) == 5 and await standing(app, session) is None
    assert "two.txt" not in files(app.directory)
    sent = str(app.provider.requests[-1].messages)
    assert "echo 1" in sent and "echo 2" not in sent


async def test_shell_command_and_summarize_clean_up_too(app: RunningApp) -> None:
    bodies: dict[str, dict[str, Any]] = {
        "shell": {"agent": "build", "command": "echo hi"},
        "command": {"command": "init", "arguments": ""},
        "summarize": {"providerID": "scripted", "modelID": "rules"},
    }
    for route, body in bodies.items():
        session = (await app.create_session(title="T", permission=ALLOW))["id"]
        gone = await reverted(app, session)
        async with app.events() as events:
            await app.post(f"/session/{session}/{route}", body)
            changed = await events.until("session.diff")
        assert [diff["file"] for diff in changed.properties["diff"]] == ["one.txt"], route
        (app.directory / "one.txt").unlink()
        left = await ids(app, session)
        assert not set(gone) & set(left) and len(left) == 5 and await standing(app, session) is None, route


async def test_a_prompt_that_is_stored_but_not_begun_makes_a_session_busy(app: RunningApp, session: str) -> None:
    """Otherwise it would count as reverted, and vanish with its answer at the next prompt."""
    prompt = await play(app, session, bash("echo two > a.txt"))
    services = app.services
    instance = await services.instances.get(str(app.directory))
    waiting = PromptInput.model_validate({"parts": [text_part("Wait")]})
    accepted = await services.prompts.accept(instance, await services.store.session_to_prompt(session), waiting)
    await revert(app, session, prompt, expect=409)
    await services.prompts.answer(session, accepted)
    await revert(app, session, prompt)


async def test_what_is_unknown_is_404_or_leaves_all_unchanged(app: RunningApp, session: str) -> None:
    await play(app, session, bash("echo two > a.txt"))
    before = await app.get(f"/session/{session}")
    assert await revert(app, session, "msg_unknown") == before
    assert await revert(app, session, "msg_unknown", partID="prt_unknown") == before
    assert await app.get(f"/session/{session}") == before and text(app) == "two\n"
    await revert(app, "ses_unknown", "msg_unknown", expect=404)
    await unrevert(app, "ses_unknown", expect=404)
    await revert(app, session, "nonsense", expect=400)


async def test_an_abort_waits_for_a_revert_that_is_under_way(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo two > a.txt"))
    reverting = asyncio.create_task(revert(app, session, prompt))
    while text(app) == "two\n":
        await asyncio.sleep(0)  # its result is not stored yet
    await app.post(f"/session/{session}/abort")
    now = (await reverting)["revert"]
    assert now["messageID"] == prompt and await standing(app, session) == now and text(app) == "hello\nworld\n"


async def test_a_dry_run_shows_the_diff_and_touches_nothing(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo two > a.txt; printf '\\0' > bin; echo x > b.txt; chmod +x b.txt"))

    async def everything() -> tuple[Any, ...]:
        index = (app.directory / ".git" / "index").read_bytes()
        return index, files(app.directory), await app.get(f"/session/{session}"), await app.get(f"/session/{session}/diff")

    before = await everything()
    async with app.events() as events:
        shown = await revert(app, session, prompt, dryRun=True)
        await asyncio.sleep(0)
        assert events.types == ["server.connected"]
    assert await everything() == before and "snapshot" not in shown["revert"]
    real = await revert(app, session, prompt)
    assert (shown["revert"]["diff"], shown["summary"]) == (real["revert"]["diff"], real["summary"])
    assert "Binary files" in real["revert"]["diff"]


def reasons(session_now: dict[str, Any]) -> dict[str, str]:
    return {item["file"]: item["reason"] for item in session_now["revert"].get("notReverted", [])}


async def reverted_reasons(app: RunningApp, session: str, prompt: str) -> dict[str, str]:
    """What a revert says that it leaves, which its dry run has said too."""
    shown = await revert(app, session, prompt, dryRun=True)
    session_now = await revert(app, session, prompt)
    assert reasons(session_now) == reasons(shown)
    return reasons(session_now)


async def test_files_that_are_too_large_ignored_or_outside_are_named_and_left(
    app: RunningApp, session: str, tmp_path: Path
) -> None:
    (app.directory / ".gitignore").write_text("*.log\n")
    log, outside, big = app.directory / "run.log", tmp_path / "outside.txt", app.directory / "big.bin"
    command = "head -c 3000000 /dev/zero > big.bin; echo two > a.txt; echo y > unseen.log"
    told = await reverted_reasons(app, session, await play(app, session, write(log, "x\n"), bash(command), write(outside, "x\n")))
    assert set(told) == {"run.log", str(outside), "big.bin"}
    assert "is ignored" in told["run.log"] and told["big.bin"] == "it is larger than 2 MiB"
    assert log.read_text() == outside.read_text() == "x\n" and text(app) == "hello\nworld\n"
    big.write_text("small now, and a person's\n")
    await unrevert(app, session)
    assert text(app) == "two\n" and big.read_text() == "small now, and a person's\n"


async def test_a_file_that_became_ignored_since_is_reverted_all_the_same(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo x > run.log; echo two > a.txt"))
    (app.directory / ".gitignore").write_text("*.log\n")
    assert reasons(await revert(app, session, prompt)) == {}
    assert not (app.directory / "run.log").exists()
    await unrevert(app, session)
    assert (app.directory / "run.log").read_text() == "x\n"


async def test_files_that_were_ignored_before_a_turn_that_changed_the_rules_stay_and_are_named(
    app: RunningApp, session: str
) -> None:
    (app.directory / ".gitignore").write_text(".env\n:x\nlib/*.o\n")
    (app.directory / "lib").mkdir()
    for name in (".env", ":x", "lib/a.o"):
        (app.directory / name).write_text("a person's\n")
    prompt = await play(app, session, bash("echo '*.log' > .gitignore; echo x > new; echo x > lib/new"))
    after = files(app.directory)
    assert set(await reverted_reasons(app, session, prompt)) == {".env", ":x", "lib/a.o"}
    assert list(files(app.directory)) == [".env", ".gitignore", ":x", "a.txt", "lib/a.o"]
    await unrevert(app, session)
    assert files(app.directory) == after


async def test_a_revert_that_cannot_read_the_rules_of_then_is_refused(
    app: RunningApp, session: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prompt = await play(app, session, bash("echo x > new; echo two > a.txt"))
    before = files(app.directory)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    assert (await revert(app, session, prompt, expect=500))["name"] == "SnapshotError"
    assert files(app.directory) == before and await standing(app, session) is None


@pytest.mark.parametrize("from_its_index", [True, False])
async def test_the_files_of_a_repository_inside_that_a_turn_made_ordinary_ones_stay_and_are_named(
    app: RunningApp, session: str, tmp_path: Path, from_its_index: bool
) -> None:
    if from_its_index:
        git(app.directory, "submodule", "add", "-q", str(make_workspace(tmp_path / "library")), "lib/a b")
    else:
        make_workspace(app.directory / "lib" / "a b")
    await play(app, session, bash("echo x > before"))
    prompt = await play(app, session, bash("rm -rf 'lib/a b/.git'; echo x > lib/new; echo two > a.txt"))
    assert set(await reverted_reasons(app, session, prompt)) == {"lib/a b/a.txt"}
    assert (app.directory / "lib" / "a b" / "a.txt").exists() and not (app.directory / "lib" / "new").exists()
    await unrevert(app, session)
    assert (app.directory / "lib" / "new").exists()


async def test_an_unrevert_deletes_again_what_the_turn_deleted_and_ignored(app: RunningApp, session: str) -> None:
    (app.directory / "x.log").write_text("x\n")
    prompt = await play(app, session, bash("rm x.log; echo '*.log' > .gitignore"))
    await revert(app, session, prompt)
    assert (app.directory / "x.log").exists()
    await unrevert(app, session)
    assert list(files(app.directory)) == [".gitignore", "a.txt"]


async def test_a_file_that_cannot_be_restored_is_reported_and_where_none_can_be_the_revert_stands(
    app: RunningApp, session: str
) -> None:
    prompt = await play(app, session, bash("mkdir d; echo x > d/f; echo two > a.txt"))
    await revert(app, session, prompt)
    place = app.directory / "d"
    place.write_text("a person's file where the directory was\n")
    async with app.events() as events:
        await unrevert(app, session)
        told = await events.until("session.error")
    assert str(place / "f") in told.properties["error"]["data"]["message"]
    assert text(app) == "two\n" and place.read_text() == "a person's file where the directory was\n"
    place.unlink()
    await revert(app, session, await play(app, session, bash("mkdir d; echo x > d/f")))
    place.write_text("in the way\n")
    assert (await unrevert(app, session, expect=500))["name"] == "SnapshotError" and await standing(app, session)
    place.unlink()
    await unrevert(app, session)
    assert state(place / "f") == ("file", b"x\n", False)


async def test_with_snapshots_switched_off_the_files_are_named(tmp_path: Path) -> None:
    async with talking(tmp_path, config={"snapshot": False}) as (app, session):
        prompt = await play(app, session, write(app.directory / "b.txt", "new\n"), bash("echo x > c.txt"))
        assert list(await reverted_reasons(app, session, prompt)) == ["b.txt", "bash"]
        assert "snapshot" not in (await standing(app, session) or {})
        assert (app.directory / "b.txt").exists() and (app.directory / "c.txt").exists()
        await app.prompt(session, "Something else")
        assert len(await app.messages(session)) == 2


async def test_when_snapshots_fail_the_turn_goes_on_and_revert_is_refused(app: RunningApp, session: str) -> None:
    first = await play(app, session, bash("echo 1 > one.txt"))
    place, away = app.data_dir / "snapshot", app.data_dir / "snapshot-away"
    place.rename(away)
    place.write_text("no git can work where a file stands\n")
    second = await play(app, session, bash("echo 2 > two.txt"))
    steps = [part for message in (await app.messages(session))[3:] for part in message["parts"]]
    assert not any(part.get("snapshot") or part["type"] == "patch" for part in steps)
    for wanted in (first, second):
        refused = await revert(app, session, wanted, expect=500)
        assert refused["name"] == "SnapshotError" and refused["data"]["message"]
    assert sorted(files(app.directory)) == ["a.txt", "one.txt", "two.txt"] and await standing(app, session) is None
    place.unlink()
    away.rename(place)
    assert list(reasons(await revert(app, session, first))) == ["bash"]
    assert sorted(files(app.directory)) == ["a.txt", "two.txt"]


async def test_a_damaged_index_stops_no_revert_and_snapshots_that_are_gone_leave_the_files(app: RunningApp, session: str) -> None:
    """As seven days later, when they are no longer kept."""
    prompt = await play(app, session, bash("echo two > a.txt"))
    for index in app.data_dir.glob("snapshot/*/*/index"):
        index.write_bytes(b"no index")
    await revert(app, session, prompt)
    assert text(app) == "hello\nworld\n"
    await unrevert(app, session)
    shutil.rmtree(app.data_dir / "snapshot")
    assert list(reasons(await revert(app, session, prompt))) == ["a.txt"] and text(app) == "two\n"


CHANGES = {
    "a rename": "mv a.txt moved.txt",
    "a rename into a new directory": "mkdir -p x/y && mv a.txt x/y/a.txt",
    "a deletion": "rm a.txt",
    "binary content": "printf '\\000\\001\\377' > a.txt; printf '\\000' > new.bin",
    "names beyond ASCII": "echo x > 日本語.txt; echo y > 'with space é.txt'; echo z > '-dash'",
    "CRLF": "printf 'one\\r\\ntwo\\r\\n' > a.txt",
    "the executable bit": "chmod +x a.txt; echo x > run.sh; chmod +x run.sh",
    "a symbolic link": "ln -s a.txt new; ln -s /nowhere dangling",
    "a file replaced by a link": "rm a.txt; ln -s /etc/hostname a.txt",
    "a file replaced by a directory": "rm a.txt; mkdir a.txt; echo x > a.txt/inside",
    "a link replaced by a file": "rm link; echo x > link",
    "a link deleted": "rm link",
    "a directory replaced by a file": "rm -r d; echo x > d",
    "a file created and deleted in one turn": "echo x > gone.txt; rm gone.txt",
    "a file emptied": ": > a.txt",
}
UNCHANGED = {"names beyond ASCII", "a symbolic link", "a file created and deleted in one turn"}
"""What was there before is there after it."""


async def test_revert_and_unrevert_are_exact_for_files_of_all_kinds(app: RunningApp, session: str) -> None:
    """Permissions to read and write stay, and the project's own repository is left alone."""

    def of_git() -> dict[str, bytes]:
        inside = (path for path in (app.directory / ".git").rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in inside if path.name != "opencode"}

    for kind in CHANGES:
        (app.directory / kind / "d" / "inner").mkdir(parents=True)
        for name in ("a.txt", "d/inner/deep"):
            (app.directory / kind / name).write_text("hello\nworld\n")
        (app.directory / kind / "link").symlink_to("/nowhere/é")
    (app.directory / "a.txt").chmod(0o600)
    before, of_git_before = files(app.directory), of_git()
    changes = [bash(f"cd '{kind}'; {command}") for kind, command in CHANGES.items()]
    prompt = await play(app, session, *changes, bash("echo two > a.txt"))
    after = files(app.directory)
    assert {name.partition("/")[0] for name in before if after.get(name) != before[name]} > {*CHANGES} - UNCHANGED
    session_now = await revert(app, session, prompt)
    assert files(app.directory) == before and reasons(session_now) == {}
    assert (app.directory / "a.txt").stat().st_mode & 0o777 == 0o600
    await unrevert(app, session)
    assert files(app.directory) == after and of_git() == of_git_before


async def test_in_a_subdirectory_only_that_is_covered(app: RunningApp) -> None:
    below = app.directory / "sub"
    put_file(below / "b.txt", "below\n")
    where = {"directory": str(below)}
    session = (await app.post("/session", {}, params=where))["id"]
    app.provider.add([bash("echo two > b.txt; echo new > c.txt")], DONE)
    answer = await app.post(f"/session/{session}/message", {"parts": [text_part("Do it")]}, params=where)
    (app.directory / "a.txt").write_text("a person's\n")
    session_now = await revert(app, session, answer["info"]["parentID"])
    assert files(app.directory) == {"a.txt": ("file", b"a person's\n", False), "sub/b.txt": ("file", b"below\n", False)}
    assert [diff["file"] for diff in await app.get(f"/session/{session}/diff")] == ["sub/b.txt", "sub/c.txt"]
    assert "a/sub/b.txt" in session_now["revert"]["diff"]
    await unrevert(app, session)
    assert state(below / "c.txt") == ("file", b"new\n", False)


@pytest.mark.parametrize("make", [lambda folder: folder.symlink_to(folder.name), endless_links], ids=["itself", "a thousand"])
async def test_a_folder_that_links_lead_from_without_end_keeps_nothing_else_from_being_reverted(
    app: RunningApp, session: str, make: Any
) -> None:
    prompt = await play(app, session, write("d/c.txt", "x"), write("b.txt", "x"))
    shutil.rmtree(app.directory / "d")
    make(app.directory / "d")
    await revert(app, session, prompt)
    assert not (app.directory / "b.txt").exists() and (app.directory / "d").is_symlink()


async def test_through_a_symbolic_link_and_with_a_submodule_whose_files_stay_its_own(tmp_path: Path) -> None:
    library, real = make_workspace(tmp_path / "library"), make_workspace(tmp_path / "real")
    (tmp_path / "link").symlink_to(real)
    git(real, "submodule", "add", "-q", str(library), "lib")
    git(real, "commit", "-qm", "with a submodule")
    async with talking(tmp_path, workspace=tmp_path / "link") as (app, session):
        prompt = await play(app, session, bash("echo two > a.txt; echo two > lib/a.txt"))
        assert (await revert(app, session, prompt))["summary"]["files"] == 1
        assert state(real / "a.txt") == ORIGINAL and state(real / "lib" / "a.txt") == ("file", b"two\n", False)


async def test_what_a_subagent_and_an_aborted_step_changed_is_reverted_with_the_turn(app: RunningApp, session: str) -> None:
    app.provider.add([task("write it")], [bash("echo sub > sub.txt")], DONE, [bash("echo two > a.txt; touch started; sleep 60")])
    answering = asyncio.create_task(app.prompt(session, "Delegate"))
    await until((app.directory / "started").exists)
    await app.post(f"/session/{session}/abort")
    await answering
    assert (app.directory / "sub.txt").read_text() == "sub\n"
    assert reasons(await revert(app, session, infos(await app.messages(session))[0]["id"])) == {}
    assert files(app.directory) == {"a.txt": ORIGINAL}


async def test_a_revert_survives_a_restart(tmp_path: Path) -> None:
    async with talking(tmp_path) as (app, session):
        prompt = await play(app, session, bash("echo two > a.txt"))
        await revert(app, session, prompt)
    async with running_app(tmp_path) as app:
        assert (await standing(app, session) or {})["messageID"] == prompt
        await unrevert(app, session)
        assert text(app) == "two\n"


# An end that the database refuses to store: files and session agree, whatever is answered.


async def test_a_revert_whose_end_is_refused_for_a_moment_is_stored_after_it(app: RunningApp, session: str) -> None:
    prompt = await play(app, session, bash("echo two > a.txt"))
    refusals = iter(range(3))
    with refused_commits() as commits:
        commits.when = lambda: text(app) == "hello\nworld\n" and next(refusals, None) is not None
        await revert(app, session, prompt)
    assert (await standing(app, session) or {})["messageID"] == prompt
    assert next(refusals, None) is None


@pytest.mark.parametrize("way", ["revert", "unrevert"])
async def test_what_is_refused_for_long_leaves_the_files_as_the_session_says(app: RunningApp, session: str, way: str) -> None:
    prompt = await play(app, session, bash("echo two > a.txt"))
    before = await app.messages(session)
    if way == "unrevert":
        await revert(app, session, prompt)
    seen = text(app)

    def has_begun() -> bool:
        commits.refuses = commits.refuses or text(app) != seen
        return commits.refuses

    with refused_commits() as commits:
        commits.when = has_begun
        await app.post(f"/session/{session}/{way}", {"messageID": prompt}, expect=503)
        assert text(app) == "two\n"
    await app.prompt(session, "And now?")
    assert (await app.messages(session))[: len(before)] == before and await standing(app, session) is None
    assert text(app) == "two\n"


async def test_a_revert_that_is_refused_gives_no_answer_to_a_message_that_asked_for_none(app: RunningApp, session: str) -> None:
    kept = (await app.prompt(session, "Keep this", noReply=True))["info"]["id"]
    with refused_commits() as commits:
        commits.starts_with = '"revert"'
        await revert(app, session, kept, expect=503)
    assert not app.services.live.get(session).unstored_end
