"""A person's own command in a session: stored as a call of the bash tool, so that the model sees it."""

import asyncio
from typing import Any

from processes import running_in
from refused_commits import refused_commits
from running_app import RunningApp
from sse_reader import Received
from turns import assert_finished, requests, say, statuses, texts, types, until, until_done

UNTIL_GO = "touch started; while [ ! -e go ]; do sleep 0.02; done"


async def shell(app: RunningApp, session: str, command: str, *, expect: int = 200, **fields: Any) -> dict[str, Any]:
    body = {"agent": "build", "command": command, **fields}
    return await app.post(f"/session/{session}/shell", body, expect=expect)


async def begun(app: RunningApp, session: str, command: str, **fields: Any) -> asyncio.Task[dict[str, Any]]:
    """A command that runs."""
    running = asyncio.create_task(shell(app, session, command, **fields))
    await until((app.directory / "started").exists)
    return running


async def test_a_command_is_stored_as_a_finished_call_of_bash_which_the_next_prompt_shows(app: RunningApp, session: str) -> None:
    answer = await shell(app, session, "echo out; echo err >&2; exit 3")
    user, stored = await app.messages(session)
    assert answer == stored
    assert types(user) == ["text"] and user["parts"][0]["synthetic"] is True and user["info"]["agent"] == "build"
    info = stored["info"]
    assert (info["parentID"], info["mode"], info["agent"]) == (user["info"]["id"], "build", "build")
    assert "finish" not in info and info["time"]["completed"] >= info["time"]["created"] and info["tokens"]["input"] == 0
    (part,) = stored["parts"]
    assert (part["tool"], part["state"]["status"], part["state"]["title"]) == ("bash", "completed", "")
    assert part["state"]["input"] == {"command": "echo out; echo err >&2; exit 3"}
    assert part["state"]["output"] == "out\nerr\n"
    assert part["state"]["metadata"] == {"output": "out\nerr\n", "description": ""}
    await app.prompt(session, "What came of it?")
    assert "out\\nerr" in str(requests(app)[-1].messages)


async def test_it_runs_in_the_sessions_directory_and_no_permission_is_asked(app: RunningApp) -> None:
    below = app.directory / "sub"
    below.mkdir()
    deny = [{"permission": "*", "pattern": "*", "action": "deny"}]
    session = (await app.post("/session", {"permission": deny}, params={"directory": str(below)}))["id"]
    answer = await shell(app, session, "pwd; cd / && echo fine")
    assert answer["parts"][0]["state"]["output"] == f"{below.resolve()}\nfine\n"
    assert answer["info"]["path"] == {"cwd": str(below), "root": str(app.directory)}


async def test_output_is_shown_while_it_comes_and_the_session_is_busy_until_the_end(app: RunningApp, session: str) -> None:
    def shows_first(event: Received) -> bool:
        part = event.properties.get("part", {})
        return part.get("type") == "tool" and part["state"].get("metadata", {}).get("output") == "first\n"

    async with app.events() as events:
        running = await begun(app, session, f"echo first; {UNTIL_GO}; echo last")
        shown = await events.until(shows_first)
        assert shown.properties["part"]["state"]["status"] == "running"
        (app.directory / "go").touch()
        await running
        await events.until("session.idle")
        assert [event.properties["status"]["type"] for event in events.of_type("session.status")] == ["busy", "idle"]
        assert events.types.index("session.idle") > max(i for i, t in enumerate(events.types) if t == "message.part.updated")


async def test_an_abort_ends_the_command_and_keeps_what_it_printed(app: RunningApp, session: str) -> None:
    running = await begun(app, session, "trap '' TERM; echo begun; touch started; while :; do sleep 0.1; done")
    async with asyncio.timeout(60):
        await app.post(f"/session/{session}/abort")
    answer = await running
    state = answer["parts"][0]["state"]
    assert state["status"] == "completed" and state["output"].startswith("begun\n") and "metadata>" in state["output"]
    assert "completed" in answer["info"]["time"] and running_in(app.directory) == []
    assert (await app.messages(session))[-1] == answer


async def test_a_client_that_goes_away_does_not_stop_the_command(app: RunningApp, session: str) -> None:
    running = await begun(app, session, f"{UNTIL_GO}; touch ended")
    running.cancel()
    await asyncio.sleep(0)
    (app.directory / "go").touch()
    await asyncio.gather(running, return_exceptions=True)
    await until_done(app, session)
    assert (app.directory / "ended").exists()
    assert (await app.messages(session))[-1]["parts"][0]["state"]["status"] == "completed"


async def test_unknown_names_are_rejected_before_anything_is_stored(app: RunningApp, session: str) -> None:
    for fields in ({"agent": "nobody"}, {"model": {"providerID": "scripted", "modelID": "nothing"}}):
        await shell(app, session, "touch ran", expect=400, **fields)
        assert await app.messages(session) == [] and not (app.directory / "ran").exists()
    await shell(app, session, "echo fine")


async def test_a_command_runs_where_the_model_of_the_session_is_gone(app: RunningApp, session: str) -> None:
    gone = {"providerID": "scripted", "modelID": "gone"}
    await app.prompt(session, "Note this.", noReply=True, model=gone)
    assert (await shell(app, session, "echo fine"))["parts"][0]["state"]["output"] == "fine\n"
    assert (await app.messages(session))[1]["info"]["model"] == gone


async def test_a_client_may_name_model_and_message_and_the_same_name_runs_nothing_again(app: RunningApp, session: str) -> None:
    chosen = {"providerID": "scripted", "modelID": "title"}
    fields: dict[str, Any] = {"messageID": "msg_mine", "model": chosen}
    answer = (await shell(app, session, "echo x >> runs", **fields))["info"]
    prompt = (await app.messages(session))[0]["info"]
    assert answer["parentID"] == "msg_mine" == prompt["id"] and prompt["model"] == chosen
    assert (answer["providerID"], answer["modelID"]) == ("scripted", "title")
    refusal = await shell(app, session, "echo x >> runs", expect=409, **fields)
    assert refusal["name"] == "ConflictError" and (app.directory / "runs").read_text() == "x\n"


async def test_a_command_whose_end_cannot_be_stored_is_closed_once_it_can(app: RunningApp, session: str) -> None:
    """Else its open message would be taken for a turn to go on with."""
    with refused_commits() as commits:
        running = await begun(app, session, UNTIL_GO, expect=503)
        commits.refused_text = '"completed":'
        (app.directory / "go").touch()
        assert (await running)["name"] == "StorageError" and app.services.live.get(session).unstored_end
        commits.refused_text = None
    await until(lambda: not app.services.live.get(session).unstored_end)
    assert "completed" in (await app.messages(session))[-1]["info"]["time"]
    assert_finished(await app.messages(session))
    assert await statuses(app) == {} and requests(app) == []
    app.provider.add([say("Now.")])
    assert texts(await app.prompt(session, "Go on")) == ["Now."]
