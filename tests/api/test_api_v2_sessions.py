"""The second API's sessions: prompts, messages and numbered events, as OpenCode 1.18 tells them."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from over_sockets import listening
from running_app import RunningApp, running_app
from turns import say, until

READ = {"tool": "read", "args": {"filePath": "a.txt"}}
STEP = ["session.next.step.started", "session.next.text.started", "session.next.text.ended", "session.next.step.ended"]
PROMPTED = ["session.next.prompt.admitted", "session.next.prompted"]


async def create(app: RunningApp, **fields: Any) -> str:
    created = await app.post("/api/session", fields)
    return str(created["data"]["id"])


async def prompt(app: RunningApp, session_id: str, text: str, *, expect: int = 200, **fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await app.post(
        f"/api/session/{session_id}/prompt", {"prompt": {"text": text}, **fields}, expect=expect
    )
    return answer["data"] if expect == 200 else answer


async def wait(app: RunningApp, session_id: str) -> None:
    await app.post(f"/api/session/{session_id}/wait", expect=204)


async def messages(app: RunningApp, session_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await app.get(f"/api/session/{session_id}/message?order=asc"))["data"]
    return found


async def history(app: RunningApp, session_id: str, after: int = 0, limit: int = 100) -> dict[str, Any]:
    page: dict[str, Any] = await app.get(f"/api/session/{session_id}/history?after={after}&limit={limit}")
    return page


async def test_a_prompt_is_admitted_answered_and_told_in_events(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[{"text": "Hello."}]]) as app:
        session = await create(app)
        async with app.events(f"/api/session/{session}/event") as events:
            admitted = await prompt(app, session, "Hi")
            await events.until("session.next.step.ended")
        await wait(app, session)
        user, assistant = await messages(app, session)
        told = (await history(app, session))["data"]

    assert [event.data for event in events.seen] == told
    assert [event["type"] for event in told] == [*PROMPTED, *STEP]
    assert told[0]["durable"] == {"aggregateID": session, "seq": admitted["admittedSeq"], "version": 1}
    assert [event["durable"]["seq"] for event in told] == sorted({event["durable"]["seq"] for event in told})
    assert (admitted["id"], admitted["prompt"], admitted["delivery"]) == (user["id"], {"text": "Hi"}, "steer")
    assert (user["type"], user["text"]) == ("user", "Hi")
    assert (assistant["type"], assistant["finish"]) == ("assistant", "stop")
    assert [(part["type"], part["text"]) for part in assistant["content"]] == [("text", "Hello.")]
    assert told[-2]["data"]["text"] == "Hello."
    assert told[-2]["data"]["textID"] == assistant["content"][0]["id"]


def types(told: dict[str, Any] | list[dict[str, Any]]) -> list[str]:
    events = told["data"] if isinstance(told, dict) else told
    return [event["type"].removeprefix("session.next.") for event in events]


async def test_a_tool_call_is_told_with_its_arguments_and_result(tmp_path: Path) -> None:
    turn = [{"reasoning": "I look."}, {"text": "Reading."}, READ]
    async with running_app(tmp_path, turns=[turn, [{"text": "Done."}]]) as app:
        session = await create(app)
        await prompt(app, session, "Read it")
        await wait(app, session)
        _, called, _ = await messages(app, session)
        told = await history(app, session)
        context = (await app.get(f"/api/session/{session}/context"))["data"]
        one = (await app.get(f"/api/session/{session}/message/{called['id']}"))["data"]
        assert context == await messages(app, session)

    assert one == called
    assert [part["type"] for part in called["content"]] == ["reasoning", "text", "tool"]
    tool = called["content"][2]
    assert (tool["name"], tool["state"]["status"], tool["state"]["input"]) == ("read", "completed", READ["args"])
    assert "hello" in tool["state"]["content"][0]["text"]
    assert called["snapshot"]["start"] == called["snapshot"]["end"]
    names = ["tool.input.started", "tool.input.ended", "tool.called", "tool.success"]
    assert [name for name in types(told) if name.startswith("tool")] == names
    success = next(event for event in told["data"] if event["type"] == "session.next.tool.success")
    assert success["data"]["callID"] == tool["id"]
    assert success["data"]["content"] == tool["state"]["content"]


async def test_a_failed_call_and_a_provider_that_refuses_say_why(tmp_path: Path) -> None:
    missing = {"tool": "read", "args": {"filePath": "none.txt"}}
    turns = [[missing], [{"text": "It is not there."}], [{"status": 400, "message": "bad thing"}]]
    async with running_app(tmp_path, turns=turns) as app:
        session = (await app.create_session(title="T"))["id"]
        for _ in range(2):
            await prompt(app, session, "Read it")
            await wait(app, session)
        _, called, _, _, failed = await messages(app, session)
        told = await history(app, session)
    assert called["content"][0]["state"]["status"] == "error"
    assert "none.txt" in called["content"][0]["state"]["error"]["message"]
    assert "tool.failed" in types(told)
    assert (failed["finish"], failed["error"]["type"]) == ("error", "unknown")
    assert "bad thing" in failed["error"]["message"]
    assert types(told)[-1] == "step.failed"
    assert told["data"][-1]["durable"]["version"] == 2


async def test_an_interrupt_ends_the_turn_and_is_told(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[{"text": "Half"}, {"wait": asyncio.Event()}]]) as app:
        session = await create(app)
        async with app.events() as events:
            await prompt(app, session, "Hi")
            await events.until("message.part.updated", count=3)
        assert (await app.get("/api/session/active"))["data"] == {session: {"type": "running"}}
        await app.post(f"/api/session/{session}/interrupt", expect=204)
        assert (await app.get("/api/session/active"))["data"] == {}
        await app.post(f"/api/session/{session}/interrupt", expect=204)
        _, answer = await messages(app, session)
        told = await history(app, session)
    assert answer["content"][0]["text"] == "Half"
    assert answer["error"]["message"]
    assert types(told)[-1] == "step.failed"


async def test_steering_joins_the_running_turn_and_queueing_waits_for_its_end(tmp_path: Path) -> None:
    gate = asyncio.Event()
    turns = [[READ, {"wait": gate}], [{"text": "Both."}], [{"text": "Later."}]]
    async with running_app(tmp_path, turns=turns) as app:
        session = await create(app)
        await prompt(app, session, "First")
        async with app.events(f"/api/session/{session}/event") as events:
            await events.until("session.next.tool.called")
            queued = await prompt(app, session, "Queued", delivery="queue")
            steered = await prompt(app, session, "Steered")
            assert queued["delivery"] == "queue" and "promotedSeq" not in queued
            again = await prompt(app, session, "Queued", delivery="queue", id=queued["id"])
            gate.set()
            await wait(app, session)
        found = await messages(app, session)
        told = (await history(app, session))["data"]
        after = await prompt(app, session, "Queued", delivery="queue", id=queued["id"])
        await prompt(app, session, "Queued", delivery="steer", id=queued["id"], expect=409)

    assert again == queued
    assert [entry.get("text") or entry["content"][-1].get("text") for entry in found] == [
        "First",
        None,
        "Steered",
        "Both.",
        "Queued",
        "Later.",
    ]
    of_queued = {event["type"]: event for event in told if event["data"].get("messageID") == queued["id"]}
    assert [event["data"]["delivery"] for event in of_queued.values()] == ["queue", "queue"]
    assert [types([event])[0] for event in of_queued.values()] == ["prompt.admitted", "prompted"]
    assert after == {**queued, "promotedSeq": of_queued["session.next.prompted"]["durable"]["seq"]}
    assert len(of_queued) == sum(event["data"].get("messageID") == queued["id"] for event in told)
    assert steered["admittedSeq"] > queued["admittedSeq"]


async def test_a_prompt_with_an_id_is_admitted_once_and_begins_when_it_is_told_to(tmp_path: Path) -> None:
    named = {"id": "msg_mine", "resume": False}
    async with running_app(tmp_path, turns=[[{"text": "Now."}]]) as app:
        session = await create(app)
        first = await prompt(app, session, "Keep this", **named)
        assert await prompt(app, session, "Keep this", **named) == first
        assert not app.provider.requests
        refused = await prompt(app, session, "Something else", expect=409, **named)
        assert refused["_tag"] == "ConflictError"
        await app.post(f"/api/session/{session}/agent", {"agent": "plan"}, expect=204)
        begun = await prompt(app, session, "Keep this", id="msg_mine")
        await wait(app, session)
        assert begun == first
        assert [entry["type"] for entry in await messages(app, session)] == ["user", "assistant"]
        await prompt(app, session, "Keep this", id="msg_mine")
        await wait(app, session)
        assert len(await messages(app, session)) == 2


async def test_the_agent_and_the_model_that_are_switched_to_answer_the_next_prompt(tmp_path: Path) -> None:
    rules = {"id": "rules", "providerID": "scripted"}
    async with running_app(tmp_path, turns=[[{"text": "Planned."}]]) as app:
        session = await create(app, agent="build", model=rules)
        await app.post(f"/api/session/{session}/agent", {"agent": "plan"}, expect=204)
        await app.post(f"/api/session/{session}/model", {"model": rules}, expect=204)
        info = (await app.get(f"/api/session/{session}"))["data"]
        await prompt(app, session, "Hi")
        await wait(app, session)
        _, answer = await messages(app, session)
        told = (await history(app, session))["data"]
    assert (info["agent"], info["model"]) == ("plan", {**rules, "variant": "default"})
    assert answer["agent"] == "plan"
    assert types(told)[:2] == ["agent.switched", "model.switched"]
    assert (told[0]["data"]["agent"], told[1]["data"]["model"]) == ("plan", rules)


async def test_a_staged_revert_is_cleared_or_committed(tmp_path: Path) -> None:
    write = {"tool": "write", "args": {"filePath": "n.txt", "content": "new\n"}}
    async with running_app(tmp_path, turns=[[write], [{"text": "Written."}]]) as app:
        session, file = await create(app), app.directory / "n.txt"
        user = (await prompt(app, session, "Write"))["id"]
        await wait(app, session)
        staged = (await app.post(f"/api/session/{session}/revert/stage", {"messageID": user}))["data"]
        assert not file.exists()
        assert (staged["messageID"], [(f["path"], f["status"], f["deletions"]) for f in staged["files"]]) == (
            user,
            [("n.txt", "deleted", 1)],
        )
        assert (await app.get(f"/api/session/{session}"))["data"]["revert"] == staged
        assert len(await messages(app, session)) == 3
        await app.post(f"/api/session/{session}/revert/clear", expect=204)
        assert file.read_text() == "new\n"
        kept = await app.post(f"/api/session/{session}/revert/stage", {"messageID": user, "files": False})
        assert kept["data"]["files"] == [] and file.exists()
        await app.post(f"/api/session/{session}/revert/commit", expect=204)
        assert file.exists() and await messages(app, session) == []
        assert "revert" not in (await app.get(f"/session/{session}"))
        await app.post(f"/api/session/{session}/revert/commit", expect=204)
        gone = await app.post(f"/api/session/{session}/revert/stage", {"messageID": user}, expect=404)
        told = await history(app, session)
    assert gone["_tag"] == "MessageNotFoundError"
    assert types(told) == ["revert.staged", "revert.cleared", "revert.staged", "revert.committed"]
    assert told["data"][0]["data"]["revert"] == staged


async def test_a_summary_is_one_message_and_the_context_begins_with_it(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[{"text": "Paris."}], [{"text": "They asked about France."}]]) as app:
        session = await create(app)
        await prompt(app, session, "The capital of France?")
        await wait(app, session)
        await app.post(f"/api/session/{session}/compact", expect=204)
        *_, summary = await messages(app, session)
        context = (await app.get(f"/api/session/{session}/context"))["data"]
        told = await history(app, session)
    assert (summary["type"], summary["reason"], summary["summary"]) == ("compaction", "manual", "They asked about France.")
    assert context == [summary]
    assert types(told)[-2:] == ["compaction.started", "compaction.ended"]
    assert told["data"][-1]["data"]["messageID"] == summary["id"]


async def test_both_apis_show_the_same_session_and_a_shell_line_as_a_message_of_its_own(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[{"text": "One."}], [{"text": "Two."}]]) as app:
        first = (await app.create_session(title="Made by the first"))["id"]
        await app.prompt(first, "Hi")
        await prompt(app, first, "Hi again")
        await wait(app, first)
        await app.post(f"/session/{first}/shell", {"agent": "build", "command": "echo shelled"})
        found = await messages(app, first)
        assert [entry["id"] for entry in found] == [m["info"]["id"] for m in await app.messages(first)]
        told = await history(app, first)
        listed = (await app.get("/api/session"))["data"]
    assert [(info["id"], info["title"]) for info in listed] == [(first, "Made by the first")]
    notice, shell = found[-2:]
    assert notice["type"] == "synthetic"
    assert (shell["type"], shell["command"], shell["output"]) == ("shell", "echo shelled", "shelled\n")
    assert types(told)[-3:] == ["synthetic", "shell.started", "shell.ended"]


async def test_files_and_agents_of_a_prompt(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session, uri = await create(app), (app.directory / "a.txt").as_uri()
        source = {"start": 4, "end": 10, "text": "@a.txt"}
        given = {
            "text": "See @a.txt",
            "files": [{"uri": uri, "name": "a.txt", "description": "Greets", "source": source}],
            "agents": [{"name": "general"}],
        }
        admitted = (await app.post(f"/api/session/{session}/prompt", {"prompt": given, "resume": False}))["data"]
        [user] = await messages(app, session)
    assert admitted["prompt"]["files"][0]["mime"] == "text/plain"
    assert (user["text"], user["files"], user["agents"]) == ("See @a.txt", admitted["prompt"]["files"], given["agents"])


# Pages.


async def test_pages_of_messages_go_both_ways(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session = await create(app)
        for number in range(5):
            await prompt(app, session, f"p{number}", resume=False)

        async def page(query: str, *, expect: int = 200) -> Any:
            return await app.get(f"/api/session/{session}/message?{query}", expect=expect)

        newest = await page("limit=2")
        older = await page(f"limit=2&cursor={newest['cursor']['next']}")
        oldest = await page(f"limit=2&cursor={older['cursor']['next']}")
        nothing = await page(f"limit=2&cursor={oldest['cursor']['next']}")
        back = await page(f"limit=2&cursor={oldest['cursor']['previous']}")
        first = await page("limit=3&order=asc")
        rest = await page(f"limit=3&cursor={first['cursor']['next']}")
        both = await page(f"order=asc&cursor={first['cursor']['next']}", expect=400)
    shown = [[entry["text"] for entry in page["data"]] for page in (newest, older, oldest, nothing, back, first, rest)]
    assert shown == [["p4", "p3"], ["p2", "p1"], ["p0"], [], ["p2", "p1"], ["p0", "p1", "p2"], ["p3", "p4"]]
    assert nothing["cursor"] == {}
    assert both["_tag"] == "InvalidCursorError"


async def test_pages_of_sessions_go_both_ways_and_keep_their_filter(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        for title in ("one", "two", "other", "three"):
            await app.create_session(title=f"{title} task" if title != "other" else title)
        newest = await app.get("/api/session?limit=1&search=task")
        older = await app.get(f"/api/session?limit=5&cursor={newest['cursor']['next']}")
        back = await app.get(f"/api/session?limit=5&cursor={older['cursor']['previous']}")
        oldest = await app.get("/api/session?limit=1&order=asc")
        elsewhere = await app.get("/api/session?directory=/nowhere")
        for path in ("web", "web/src", "website"):
            (app.directory / path).mkdir(exist_ok=True)
            await app.post(f"/session?directory={app.directory / path}", {"title": path})
        of_web = await app.get("/api/session?limit=1&subpath=web")
        older_of_web = await app.get(f"/api/session?cursor={of_web['cursor']['next']}")
    shown = [[info["title"] for info in page["data"]] for page in (newest, older, back, oldest, elsewhere, of_web, older_of_web)]
    assert shown == [["three task"], ["two task", "one task"], ["three task"], ["one task"], [], ["web/src"], ["web"]]


async def test_a_history_is_read_page_by_page_and_the_stream_goes_on_behind_it(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[{"text": "One."}], [{"text": "Two."}]]) as app:
        session = await create(app)
        await prompt(app, session, "Hi")
        await wait(app, session)
        pages, after = [], 0
        while True:
            page = await history(app, session, after, limit=2)
            pages.append(len(page["data"]))
            after = page["data"][-1]["durable"]["seq"]
            if not page["hasMore"]:
                break
        async with app.events(f"/api/session/{session}/event?after={after}") as events:
            await prompt(app, session, "Again")
            await events.until("session.next.step.ended")
        assert pages == [2, 2, 2]
        assert [event.data for event in events.seen] == (await history(app, session, after))["data"]
        assert types([event.data for event in events.seen]) == [name.removeprefix("session.next.") for name in [*PROMPTED, *STEP]]


async def test_a_session_with_an_id_is_created_once(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        first = await app.post("/api/session", {"id": "ses_mine", "agent": "plan"})
        assert await app.post("/api/session", {"id": "ses_mine", "agent": "build"}) == first
        assert first["data"]["location"] == {"directory": str(app.directory)}
        assert len((await app.get("/api/session"))["data"]) == 1


async def test_a_busy_session_refuses_what_needs_it_idle(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with running_app(tmp_path, turns=[[{"text": "x"}, {"wait": gate}]]) as app:
        session = await create(app)
        user = (await prompt(app, session, "Hi"))["id"]
        for path in ("compact", "revert/stage", "revert/clear", "revert/commit"):
            answer = await app.post(f"/api/session/{session}/{path}", {"messageID": user}, expect=409)
            assert answer["_tag"] == "SessionBusyError", path
        gate.set()
        await wait(app, session)


async def test_a_wait_ends_with_its_client(tmp_path: Path) -> None:
    """Otherwise it would go on asking the database."""

    def waits() -> bool:
        return any("all_answered" in repr(task) or "wait for" in task.get_name() for task in asyncio.all_tasks())

    async with running_app(tmp_path, turns=[[say("One."), {"wait": (gate := asyncio.Event())}]]) as app, listening(app) as port:
        session = (await app.create_session(title="T"))["id"]
        await app.prompt_async(session, "Hi")
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            waiting = asyncio.create_task(client.post(f"/api/session/{session}/wait"))
            await until(waits)
            waiting.cancel()
            await asyncio.wait({waiting})
        await until(lambda: not waits(), "the wait is over")
        gate.set()
