"""The second API's sessions: prompts, messages and numbered events, as OpenCode 1.18 tells them, and its stream of all events."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from over_sockets import listening
from running_app import RunningApp, running_app
from turns import bash, call, say, until

READ = call("read", filePath="a.txt")
STEP = ["step.started", "text.started", "text.ended", "step.ended"]
PROMPTED = ["prompt.admitted", "prompted"]


async def create(app: RunningApp, *turns: list[dict[str, Any]], **fields: Any) -> str:
    """A session, in which the model answers with these turns."""
    app.provider.add(*turns)
    return str((await app.post("/api/session", fields))["data"]["id"])


async def ask(app: RunningApp, session_id: str, verb: str, body: Any = None, **options: Any) -> Any:
    return await app.post(f"/api/session/{session_id}/{verb}", body, **{"expect": 204, **options})


async def prompt(app: RunningApp, session_id: str, text: str, *, expect: int = 200, **fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await ask(app, session_id, "prompt", {"prompt": {"text": text}, **fields}, expect=expect)
    return answer["data"] if expect == 200 else answer


async def prompted(app: RunningApp, session_id: str, text: str, **fields: Any) -> dict[str, Any]:
    """When it is answered."""
    admitted = await prompt(app, session_id, text, **fields)
    await ask(app, session_id, "wait")
    return admitted


async def read(app: RunningApp, session_id: str, below: str = "") -> Any:
    return (await app.get(f"/api/session/{session_id}{below}"))["data"]


async def messages(app: RunningApp, session_id: str) -> list[dict[str, Any]]:
    return await read(app, session_id, "/message?order=asc")


async def history(app: RunningApp, session_id: str, after: int = 0) -> list[dict[str, Any]]:
    return await read(app, session_id, f"/history?after={after}&limit=100")


def types(told: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("session.next.") for event in told]


async def test_a_prompt_is_admitted_answered_and_told_in_events(app: RunningApp) -> None:
    session = await create(app, [say("Hello.")])
    async with app.events(f"/api/session/{session}/event") as events:
        admitted = await prompt(app, session, "Hi")
        await events.until("session.next.step.ended")
    await ask(app, session, "wait")
    user, assistant = await messages(app, session)
    told = await history(app, session)
    assert [event.data for event in events.seen] == told and types(told) == [*PROMPTED, *STEP]
    assert told[0]["durable"] == {"aggregateID": session, "seq": admitted["admittedSeq"], "version": 1}
    assert [event["durable"]["seq"] for event in told] == sorted({event["durable"]["seq"] for event in told})
    assert (admitted["id"], admitted["prompt"], admitted["delivery"]) == (user["id"], {"text": "Hi"}, "steer")
    assert (user["type"], user["text"], assistant["type"], assistant["finish"]) == ("user", "Hi", "assistant", "stop")
    assert [(part["type"], part["text"]) for part in assistant["content"]] == [("text", "Hello.")]
    assert (told[-2]["data"]["text"], told[-2]["data"]["textID"]) == ("Hello.", assistant["content"][0]["id"])


async def test_a_tool_call_is_told_with_its_arguments_and_result(app: RunningApp) -> None:
    session = await create(app, [{"reasoning": "I look."}, say("Reading."), READ], [say()])
    await prompted(app, session, "Read it")
    _, called, _ = await messages(app, session)
    assert await read(app, session, "/context") == await messages(app, session)
    assert await read(app, session, f"/message/{called['id']}") == called
    assert [part["type"] for part in called["content"]] == ["reasoning", "text", "tool"]
    tool = called["content"][2]
    assert (tool["name"], tool["state"]["status"], tool["state"]["input"]) == ("read", "completed", READ["args"])
    assert "hello" in tool["state"]["content"][0]["text"]
    assert called["snapshot"]["start"] == called["snapshot"]["end"]
    told = [event for event in await history(app, session) if ".tool." in event["type"]]
    assert types(told) == ["tool.input.started", "tool.input.ended", "tool.called", "tool.success"]
    assert (told[-1]["data"]["callID"], told[-1]["data"]["content"]) == (tool["id"], tool["state"]["content"])


async def test_a_failed_call_and_a_provider_that_refuses_say_why(app: RunningApp) -> None:
    app.provider.add([call("read", filePath="none.txt")], [say("It is not there.")], [{"status": 400, "message": "bad thing"}])
    session = (await app.create_session(title="T"))["id"]
    for _ in range(2):
        await prompted(app, session, "Read it")
    _, called, _, _, failed = await messages(app, session)
    told = await history(app, session)
    assert called["content"][0]["state"]["status"] == "error"
    assert "none.txt" in called["content"][0]["state"]["error"]["message"]
    assert (failed["finish"], failed["error"]["type"]) == ("error", "unknown") and "bad thing" in failed["error"]["message"]
    assert "tool.failed" in types(told) and types(told)[-1] == "step.failed" and told[-1]["durable"]["version"] == 2


async def test_an_interrupt_ends_the_turn_and_is_told(app: RunningApp) -> None:
    session = await create(app, [say("Half"), {"wait": asyncio.Event()}])
    async with app.events() as events:
        await prompt(app, session, "Hi")
        await events.until("message.part.updated", count=3)
    for running in ({session: {"type": "running"}}, {}):
        assert (await app.get("/api/session/active"))["data"] == running
        await ask(app, session, "interrupt")
    _, answer = await messages(app, session)
    assert answer["content"][0]["text"] == "Half" and answer["error"]["message"]
    assert types(await history(app, session))[-1] == "step.failed"


async def test_steering_joins_the_running_turn_and_queueing_waits_for_its_end(app: RunningApp) -> None:
    gate, later = asyncio.Event(), {"delivery": "queue"}
    session = await create(app, [READ, {"wait": gate}], [say("Both.")], [say("Later.")])
    await prompt(app, session, "First")
    async with app.events(f"/api/session/{session}/event") as events:
        await events.until("session.next.tool.called")
        queued = await prompt(app, session, "Queued", **later)
        steered = await prompt(app, session, "Steered")
        assert queued["delivery"] == "queue" and "promotedSeq" not in queued
        assert await prompt(app, session, "Queued", **later, id=queued["id"]) == queued
        await prompt(app, session, "Queued", delivery="steer", id=queued["id"], expect=409)
        gate.set()
        await ask(app, session, "wait")
    said = [entry.get("text") or entry["content"][-1].get("text") for entry in await messages(app, session)]
    assert said == ["First", None, "Steered", "Both.", "Queued", "Later."]
    of_queued = [event for event in await history(app, session) if event["data"].get("messageID") == queued["id"]]
    assert types(of_queued) == PROMPTED and [event["data"]["delivery"] for event in of_queued] == ["queue", "queue"]
    after = await prompt(app, session, "Queued", **later, id=queued["id"])
    assert after == {**queued, "promotedSeq": of_queued[1]["durable"]["seq"]}
    await prompt(app, session, "Queued", delivery="steer", id=queued["id"], expect=409)
    assert steered["admittedSeq"] > queued["admittedSeq"]


async def test_an_idle_session_begins_a_queued_prompt_at_once_however_often_it_is_sent(app: RunningApp) -> None:
    session, named = await create(app, [say("Now.")]), {"id": "msg_mine", "delivery": "queue"}
    first = await prompted(app, session, "Hi", **named)
    assert await prompt(app, session, "Hi", **named) == first and first["delivery"] == "steer"
    assert [entry["type"] for entry in await messages(app, session)] == ["user", "assistant"]


async def test_a_prompt_with_an_id_is_admitted_once_and_begins_when_it_is_told_to(app: RunningApp) -> None:
    named, session = {"id": "msg_mine", "resume": False}, await create(app, [say("Now.")])
    first = await prompt(app, session, "Keep this", **named)
    assert await prompt(app, session, "Keep this", **named) == first
    assert not app.provider.requests
    refused = await prompt(app, session, "Something else", expect=409, **named)
    assert refused["_tag"] == "ConflictError"
    await ask(app, session, "agent", {"agent": "plan"})
    assert await prompted(app, session, "Keep this", id="msg_mine") == first
    assert [entry["type"] for entry in await messages(app, session)] == ["user", "assistant"]
    await prompted(app, session, "Keep this", id="msg_mine")
    assert len(await messages(app, session)) == 2


async def test_the_agent_and_the_model_that_are_switched_to_answer_the_next_prompt(app: RunningApp) -> None:
    rules = {"id": "rules", "providerID": "scripted"}
    session = await create(app, [say("Planned.")], agent="build", model=rules)
    await ask(app, session, "agent", {"agent": "plan"})
    await ask(app, session, "model", {"model": rules})
    info = await read(app, session)
    assert (info["agent"], info["model"]) == ("plan", {**rules, "variant": "default"})
    await prompted(app, session, "Hi")
    assert (await messages(app, session))[1]["agent"] == "plan"
    told = await history(app, session)
    assert types(told)[:2] == ["agent.switched", "model.switched"]
    assert (told[0]["data"]["agent"], told[1]["data"]["model"]) == ("plan", rules)


async def test_a_staged_revert_is_cleared_or_committed(app: RunningApp) -> None:
    session, file = await create(app, [call("write", filePath="n.txt", content="new\n")], [say()]), app.directory / "n.txt"
    user = {"messageID": (await prompted(app, session, "Write"))["id"]}
    staged = (await ask(app, session, "revert/stage", user, expect=200))["data"]
    assert not file.exists()
    assert staged.items() >= user.items()
    assert [(each["path"], each["status"], each["deletions"]) for each in staged["files"]] == [("n.txt", "deleted", 1)]
    assert (await read(app, session))["revert"] == staged and len(await messages(app, session)) == 3
    await ask(app, session, "revert/clear")
    assert file.read_text() == "new\n"
    kept = await ask(app, session, "revert/stage", {**user, "files": False}, expect=200)
    assert kept["data"]["files"] == [] and file.exists()
    await ask(app, session, "revert/commit")
    assert file.exists() and await messages(app, session) == []
    assert "revert" not in await app.get(f"/session/{session}")
    await ask(app, session, "revert/commit")
    assert (await ask(app, session, "revert/stage", user, expect=404))["_tag"] == "MessageNotFoundError"
    told = await history(app, session)
    assert types(told) == ["revert.staged", "revert.cleared", "revert.staged", "revert.committed"]
    assert told[0]["data"]["revert"] == staged


async def test_a_summary_is_one_message_and_the_context_begins_with_it(app: RunningApp) -> None:
    session = await create(app, [say("Paris.")], [say("They asked about France.")])
    await prompted(app, session, "The capital of France?")
    await ask(app, session, "compact")
    *_, summary = await messages(app, session)
    assert (summary["type"], summary["reason"], summary["summary"]) == ("compaction", "manual", "They asked about France.")
    assert await read(app, session, "/context") == [summary]
    told = await history(app, session)
    assert types(told)[-2:] == ["compaction.started", "compaction.ended"]
    assert told[-1]["data"]["messageID"] == summary["id"]


async def test_both_apis_show_the_same_session_and_a_shell_line_as_a_message_of_its_own(app: RunningApp) -> None:
    first = (await app.create_session(title="Made by the first"))["id"]
    await app.prompt(first, "Hi")
    await prompted(app, first, "Hi again")
    await app.post(f"/session/{first}/shell", {"agent": "build", "command": "echo shelled"})
    found = await messages(app, first)
    assert [entry["id"] for entry in found] == [each["info"]["id"] for each in await app.messages(first)]
    assert [(info["id"], info["title"]) for info in (await app.get("/api/session"))["data"]] == [(first, "Made by the first")]
    notice, shell = found[-2:]
    assert notice["type"] == "synthetic"
    assert (shell["type"], shell["command"], shell["output"]) == ("shell", "echo shelled", "shelled\n")
    assert types(await history(app, first))[-3:] == ["synthetic", "shell.started", "shell.ended"]


async def test_files_and_agents_of_a_prompt(app: RunningApp) -> None:
    session = await create(app)
    source = {"start": 4, "end": 10, "text": "@a.txt"}
    file = {"uri": (app.directory / "a.txt").as_uri(), "name": "a.txt", "description": "Greets", "source": source}
    given = {"text": "See @a.txt", "files": [file], "agents": [{"name": "general"}]}
    admitted = (await ask(app, session, "prompt", {"prompt": given, "resume": False}, expect=200))["data"]["prompt"]
    [user] = await messages(app, session)
    assert admitted["files"][0]["mime"] == "text/plain"
    assert (user["text"], user["files"], user["agents"]) == ("See @a.txt", admitted["files"], given["agents"])


async def test_a_session_with_an_id_is_created_once(app: RunningApp) -> None:
    first = await app.post("/api/session", {"id": "ses_mine", "agent": "plan"})
    assert await app.post("/api/session", {"id": "ses_mine", "agent": "build"}) == first
    assert first["data"]["location"] == {"directory": str(app.directory)}
    assert len((await app.get("/api/session"))["data"]) == 1


async def test_a_busy_session_refuses_what_needs_it_idle_and_a_wait_ends_with_its_client(app: RunningApp) -> None:
    """Otherwise it would go on asking the database."""

    def waits() -> bool:
        return any("all_answered" in repr(task) or "wait for" in task.get_name() for task in asyncio.all_tasks())

    session = await create(app, [say("x"), {"wait": (gate := asyncio.Event())}])
    user = {"messageID": (await prompt(app, session, "Hi"))["id"]}
    for path in ("compact", "revert/stage", "revert/clear", "revert/commit"):
        assert (await ask(app, session, path, user, expect=409))["_tag"] == "SessionBusyError", path
    async with listening(app) as port, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        waiting = asyncio.create_task(client.post(f"/api/session/{session}/wait"))
        await until(waits)
        waiting.cancel()
        await asyncio.wait({waiting})
        await until(lambda: not waits(), "the wait is over")
    gate.set()


# Pages.


async def test_pages_of_messages_go_both_ways(app: RunningApp) -> None:
    session = await create(app)
    for number in range(5):
        await prompt(app, session, f"p{number}", resume=False)

    async def page(query: str, *, expect: int = 200) -> Any:
        return await app.get(f"/api/session/{session}/message?{query}", expect=expect)

    newest, first = await page("limit=2"), await page("limit=3&order=asc")
    older = await page(f"limit=2&cursor={newest['cursor']['next']}")
    oldest = await page(f"limit=2&cursor={older['cursor']['next']}")
    nothing = await page(f"limit=2&cursor={oldest['cursor']['next']}")
    back = await page(f"limit=2&cursor={oldest['cursor']['previous']}")
    rest = await page(f"limit=3&cursor={first['cursor']['next']}")
    shown = [[entry["text"] for entry in page["data"]] for page in (newest, older, oldest, nothing, back, first, rest)]
    assert shown == [["p4", "p3"], ["p2", "p1"], ["p0"], [], ["p2", "p1"], ["p0", "p1", "p2"], ["p3", "p4"]]
    assert nothing["cursor"] == {}
    both = await page(f"order=asc&cursor={first['cursor']['next']}", expect=400)
    assert both["_tag"] == "InvalidCursorError"


async def test_pages_of_sessions_go_both_ways_and_keep_their_filter(app: RunningApp) -> None:
    for title in ("one task", "two task", "other", "three task"):
        await app.create_session(title=title)
    newest = await app.get("/api/session?limit=1&search=task")
    older = await app.get(f"/api/session?limit=5&cursor={newest['cursor']['next']}")
    back = await app.get(f"/api/session?limit=5&cursor={older['cursor']['previous']}")
    oldest, elsewhere = await app.get("/api/session?limit=1&order=asc"), await app.get("/api/session?directory=/nowhere")
    for path in ("web", "web/src", "website"):
        (app.directory / path).mkdir()
        await app.post(f"/session?directory={app.directory / path}", {"title": path})
    of_web = await app.get("/api/session?limit=1&subpath=web")
    older_of_web = await app.get(f"/api/session?cursor={of_web['cursor']['next']}")
    shown = [[info["title"] for info in page["data"]] for page in (newest, older, back, oldest, elsewhere, of_web, older_of_web)]
    assert shown == [["three task"], ["two task", "one task"], ["three task"], ["one task"], [], ["web/src"], ["web"]]


# The stream of all events; whose they are: test_api_users.py.


async def test_it_has_the_first_apis_events_in_its_form_and_requests_to_the_user_beside_them(app: RunningApp) -> None:
    app.provider.add([say("Hello there."), bash("echo hi")], [say()])
    async with app.events("/api/event") as events:
        greeting = await events.until("server.connected")
        assert greeting.data == {"id": greeting.event_id, "type": "server.connected", "data": {}}
        session = await app.create_session(permission=[{"permission": "bash", "pattern": "*", "action": "ask"}])
        created = await events.until("session.created")
        assert created.data.keys() == {"id", "type", "location", "data"} and created.event_id.startswith("evt_")
        assert created.data["location"] == {"directory": str(app.directory)}
        assert created.data["data"]["info"]["id"] == session["id"]
        await app.prompt_async(session["id"], "go")
        asked = (await events.until("permission.v2.asked")).data["data"]
        assert asked == (await app.get("/api/permission/request"))["data"][0]
        assert (await events.until("permission.asked")).data["data"]["id"] == asked["id"]
        await app.post(f"/permission/{asked['id']}/reply", {"reply": "once"})
        replied = (await events.until("permission.v2.replied")).data["data"]
        assert replied == {"sessionID": session["id"], "requestID": asked["id"], "reply": "once"}
        await events.until("session.idle")
    assert len({event.event_id for event in events.seen}) == len(events.seen)
    gained = [event.data["data"] for event in events.of_type("message.part.delta")]
    assert "Hello there." in "".join(each["delta"] for each in gained if each["field"] == "text")
    assert all("delta" not in event.data["data"] for event in events.of_type("message.part.updated"))
    missed = await app.create_session(title="missed")
    async with app.events("/api/event", cursor=events.seen[-1].event_id) as events:
        again = await events.until("session.created")
        assert again.data["data"]["info"]["id"] == missed["id"], "what it missed is sent to a client that comes back"


async def test_between_events_it_sends_comments(tmp_path: Path) -> None:
    async with running_app(tmp_path, heartbeat_seconds=0.01) as app, app.client.stream("GET", "/api/event") as response:
        text, pieces = "", response.aiter_text()
        async with asyncio.timeout(60):
            while text.count(": heartbeat\n\n") < 2:
                text += await anext(pieces)
    assert "server.heartbeat" not in text
