"""A person's own command in a session: stored as a call of the bash tool, so that the model sees it."""

import asyncio
from typing import Any

import pytest
from processes import running_in
from refused_commits import refused_commits
from running_app import RunningApp
from turns import assert_finished, requests, statuses, texts, types, until


async def shell(app: RunningApp, session: str, command: str, *, expect: int = 200, **fields: Any) -> dict[str, Any]:
    body = {"agent": "build", "command": command, **fields}
    answer: dict[str, Any] = await app.post(f"/session/{session}/shell", body, expect=expect)
    return answer


async def test_a_command_is_stored_as_a_finished_call_of_bash(app: RunningApp, session: str) -> None:
    answer = await shell(app, session, "echo out; echo err >&2; exit 3")
    messages = await app.messages(session)
    user, stored = messages
    assert answer == stored
    assert types(user) == ["text"]
    assert user["parts"][0]["synthetic"] is True
    assert user["info"]["agent"] == "build"
    info = stored["info"]
    assert (info["parentID"], info["mode"], info["agent"]) == (user["info"]["id"], "build", "build")
    assert "finish" not in info
    assert info["time"]["completed"] >= info["time"]["created"]
    assert info["tokens"]["input"] == 0
    (part,) = stored["parts"]
    assert (part["tool"], part["state"]["status"], part["state"]["title"]) == ("bash", "completed", "")
    assert part["state"]["input"] == {"command": "echo out; echo err >&2; exit 3"}
    assert part["state"]["output"] == "out\nerr\n"
    assert part["state"]["metadata"] == {"output": "out\nerr\n", "description": ""}


async def test_it_runs_in_the_sessions_directory(app: RunningApp) -> None:
    below = app.directory / "sub"
    below.mkdir()
    session = (await app.post("/session", {}, params={"directory": str(below)}))["id"]
    answer = await shell(app, session, "pwd")
    assert answer["parts"][0]["state"]["output"].strip() == str(below.resolve())
    assert answer["info"]["path"] == {"cwd": str(below), "root": str(app.directory)}


async def test_no_permission_is_asked(app: RunningApp) -> None:
    deny = [{"permission": "*", "pattern": "*", "action": "deny"}]
    session = (await app.create_session(permission=deny))["id"]
    answer = await shell(app, session, "cd / && echo fine")
    assert answer["parts"][0]["state"]["output"] == "fine\n"


async def test_output_is_shown_while_it_comes_and_the_session_is_busy_until_the_end(app: RunningApp, session: str) -> None:
    async with app.events() as events:
        running = asyncio.create_task(shell(app, session, "echo first; while [ ! -e go ]; do sleep 0.02; done; echo last"))

        def shows_first(event: Any) -> bool:
            part = event.properties.get("part", {})
            return part.get("type") == "tool" and part["state"].get("metadata", {}).get("output") == "first\n"

        shown = await events.until(shows_first)
        assert shown.properties["part"]["state"]["status"] == "running"
        (app.directory / "go").touch()
        await running
        await events.until("session.idle")
        told = [event.properties["status"]["type"] for event in events.of_type("session.status")]
        assert told == ["busy", "idle"]
        assert events.types.index("session.idle") > max(i for i, t in enumerate(events.types) if t == "message.part.updated")


async def test_the_next_prompt_shows_the_model_the_command(app: RunningApp, session: str) -> None:
    await shell(app, session, "echo seen-by-the-model")
    app.provider.add([{"text": "I see."}])
    await app.prompt(session, "What came of it?")
    assert "seen-by-the-model" in str(requests(app)[-1].messages)


async def test_a_prompt_waits_for_the_command(app: RunningApp, session: str) -> None:
    running = asyncio.create_task(shell(app, session, "touch started; while [ ! -e go ]; do sleep 0.02; done; echo late"))
    await until((app.directory / "started").exists)
    await shell(app, session, "true", expect=409)
    app.provider.add([{"text": "Now."}])
    prompting = asyncio.create_task(app.prompt(session, "Go on"))
    async with app.events():
        while len(await app.messages(session)) < 3:
            await asyncio.sleep(0)
    assert app.provider.requests == []
    (app.directory / "go").touch()
    await running
    answer = await prompting
    assert answer["parts"][1]["text"] == "Now."
    assert "late" in str(requests(app)[-1].messages)


async def test_an_abort_ends_the_command_and_keeps_what_it_printed(app: RunningApp, session: str) -> None:
    command = "trap '' TERM; echo begun; touch up; while :; do sleep 0.1; done"
    running = asyncio.create_task(shell(app, session, command))
    await until((app.directory / "up").exists)
    async with asyncio.timeout(60):
        await app.post(f"/session/{session}/abort")
    answer = await running
    state = answer["parts"][0]["state"]
    assert state["status"] == "completed"
    assert state["output"].startswith("begun\n")
    assert "metadata>" in state["output"]
    assert "completed" in answer["info"]["time"]
    assert running_in(app.directory) == []
    assert (await app.messages(session))[-1] == answer


async def test_a_client_that_goes_away_does_not_stop_the_command(app: RunningApp, session: str) -> None:
    running = asyncio.create_task(shell(app, session, "touch started; while [ ! -e go ]; do sleep 0.02; done; touch ended"))
    await until((app.directory / "started").exists)
    running.cancel()
    await asyncio.sleep(0)
    (app.directory / "go").touch()
    await asyncio.gather(running, return_exceptions=True)
    await until(lambda: not app.services.live.is_running(session))
    assert (app.directory / "ended").exists()
    assert (await app.messages(session))[-1]["parts"][0]["state"]["status"] == "completed"


@pytest.mark.parametrize(
    "fields", [{"agent": "nobody"}, {"model": {"providerID": "scripted", "modelID": "nothing"}}], ids=["agent", "model"]
)
async def test_unknown_names_are_rejected_before_anything_is_stored(
    app: RunningApp, session: str, fields: dict[str, Any]
) -> None:
    await shell(app, session, "touch ran", expect=400, **fields)
    assert await app.messages(session) == []
    assert not (app.directory / "ran").exists()
    await shell(app, session, "echo fine")


async def test_a_model_of_its_own_is_the_one_that_the_message_names(app: RunningApp, session: str) -> None:
    chosen = {"providerID": "scripted", "modelID": "title"}
    answer = await shell(app, session, "true", model=chosen)
    assert (answer["info"]["providerID"], answer["info"]["modelID"]) == ("scripted", "title")
    assert (await app.messages(session))[0]["info"]["model"] == chosen


async def test_a_client_may_name_the_message_and_the_same_name_runs_nothing_again(app: RunningApp, session: str) -> None:
    body = {"agent": "build", "command": "echo x >> runs", "messageID": "msg_mine"}
    answer = await app.post(f"/session/{session}/shell", body)
    assert answer["info"]["parentID"] == "msg_mine" == (await app.messages(session))[0]["info"]["id"]
    refusal = await app.post(f"/session/{session}/shell", body, expect=409)
    assert refusal["name"] == "ConflictError" and (app.directory / "runs").read_text() == "x\n"


async def test_a_command_whose_end_cannot_be_stored_is_closed_once_it_can(app: RunningApp, session: str) -> None:
    """Else its open message would be taken for a turn to go on with."""
    with refused_commits() as commits:
        running = asyncio.create_task(shell(app, session, "touch started; while [ ! -e go ]; do sleep 0.02; done", expect=503))
        await until((app.directory / "started").exists)
        commits.refused_text = '"completed":'
        (app.directory / "go").touch()
        assert (await running)["name"] == "StorageError"
        assert app.services.live.get(session).unstored_end
        commits.refused_text = None
    async with asyncio.timeout(60):
        while "completed" not in (await app.messages(session))[-1]["info"]["time"]:
            await asyncio.sleep(0.02)
    assert_finished(await app.messages(session))
    await until(lambda: not app.services.live.get(session).unstored_end)
    assert await statuses(app) == {} and requests(app) == []
    app.provider.add([{"text": "Now."}])
    async with app.events() as events:
        await app.prompt_async(session, "Go on")
        await events.until("session.idle")
    assert texts((await app.messages(session))[-1]) == ["Now."]
