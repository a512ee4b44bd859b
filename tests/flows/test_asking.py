"""Permissions and questions: a turn waits for a person."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
import turns
from turns import all_pending, bash, call, pending, reply, requests, say, states, statuses, talking, texts, tools

from app.permissions import service

ASK = {"permission": {"bash": "ask"}}
QUESTION = {
    "question": "Which?",
    "header": "Which",
    "options": [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}],
}


async def test_once_lets_this_call_through_and_asks_again_for_the_next(tmp_path: Path) -> None:
    steps = [[bash("echo one", "c1")], [bash("echo two", "c2")], [say()]]
    async with talking(tmp_path, config=ASK, turns=steps) as (app, session):
        async with app.events() as events:
            await app.prompt_async(session, "Go")
            asked = (await events.until("permission.asked")).properties
            assert asked["sessionID"] == session and asked["patterns"] == ["echo one"] and asked["always"] == ["echo *"]
            step = (await app.messages(session))[-1]
            assert asked["tool"] == {"messageID": step["info"]["id"], "callID": "c1"}
            assert tools(step)[0]["state"]["status"] == "running"
            assert await statuses(app) == {session: {"type": "busy"}}
            await reply(app, asked, "once")
            again = (await events.until("permission.asked", count=2)).properties
            await reply(app, again, "once")
            await events.until("session.idle")
            assert [event.properties["reply"] for event in events.of_type("permission.replied")] == ["once", "once"]
        assert [state["output"] for state in await states(app, session)] == ["one\n", "two\n"]


async def test_always_holds_for_the_project_also_after_a_restart(tmp_path: Path) -> None:
    workspace = turns.configured(tmp_path, ASK)
    async with talking(tmp_path, workspace=workspace, turns=[[bash("echo one")], [bash("echo two")], [say()]]) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Go"))
        await reply(app, await pending(app), "always")
        await prompt
        assert [state["output"] for state in await states(app, session)] == ["one\n", "two\n"]
    async with talking(tmp_path, workspace=workspace, turns=[[bash("echo three")], [say()]]) as (app, other):
        await app.prompt(other, "Go")
        assert [state["output"] for state in await states(app, other)] == ["three\n"]


async def test_always_opens_the_folder_that_was_asked_for_and_not_its_neighbours(tmp_path: Path) -> None:
    for name in ("notes", "notebooks"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(f"in {name}\n")
    asks = {"permission": {"external_directory": "ask"}}
    steps = [[bash(f"ls {tmp_path}/notes")], [bash(f"ls {tmp_path}/notes; cat {tmp_path}/notes/file")]]
    steps += [[bash(f"cat {tmp_path}/notebooks/file")], [say()]]
    async with talking(tmp_path, config=asks, turns=steps, sandbox="off") as (app, session):
        await app.prompt_async(session, "Go")
        await reply(app, await pending(app), "always")
        await reply(app, await pending(app), "reject")
        await turns.until_done(app, session)
        _, again, beside = await states(app, session)
    assert "in notes" in again["output"] and beside["status"] == "error"


async def test_always_lets_through_what_waits_for_the_same(tmp_path: Path) -> None:
    steps = [[bash("echo one", "c1"), bash("echo two", "c2"), bash("ls", "c3")], [say()]]
    async with talking(tmp_path, config=ASK, turns=steps) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Go"))
        waiting = {request["tool"]["callID"]: request for request in await all_pending(app, 3)}
        await reply(app, waiting["c1"], "always")
        (left,) = await app.get("/permission")
        assert left["tool"]["callID"] == "c3"
        await reply(app, left, "once")
        await prompt
        assert [state["status"] for state in await states(app, session)] == ["completed"] * 3


async def test_the_calls_of_a_step_ask_in_their_order(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(12)]
    steps = [[bash(f"echo {name}", name) for name in names], [say()]]
    async with talking(tmp_path, config=ASK, turns=steps) as (app, session), app.events() as events:
        await app.prompt_async(session, "Go")
        await events.until("permission.asked", count=len(names))
        assert [event.properties["tool"]["callID"] for event in events.of_type("permission.asked")] == names
        assert [request["tool"]["callID"] for request in await app.get("/permission")] == names


async def test_a_rejection_rejects_all_that_waits_and_stops_the_turn(tmp_path: Path) -> None:
    steps = [[bash("echo one", "c1"), bash("echo two", "c2"), call("read", "c3", filePath="a.txt")], [say("not asked for")]]
    async with talking(tmp_path, config=ASK, turns=steps) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Go"))
        first, _ = await all_pending(app, 2)
        await reply(app, first, "reject")
        answer = await prompt
        assert await app.get("/permission") == [] and await statuses(app) == {}
        assert len(requests(app)) == 1
        messages = await app.messages(session)
    assert answer["info"]["finish"] == "tool-calls" and "error" not in answer["info"]
    assert [tool["state"]["status"] for tool in tools(answer)] == ["error", "error", "completed"]
    assert "rejected permission" in tools(answer)[0]["state"]["error"]
    assert turns.parts(answer, "step-finish") and len(messages) == 2
    turns.assert_finished(messages)


@pytest.mark.parametrize(
    ("goes_on", "reason"), [(True, {}), (False, {"message": "Use printf"})], ids=["by setting", "with a reason"]
)
async def test_the_turn_goes_on_after_a_rejection(tmp_path: Path, goes_on: bool, reason: dict[str, str]) -> None:
    """Where the configuration says so; and where the user gave a reason, which goes back to the model."""
    config = {**ASK, "experimental": {"continue_loop_on_deny": goes_on}}
    async with talking(tmp_path, config=config, turns=[[bash("echo one")], [say("Then not.")]]) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Go"))
        await reply(app, await pending(app), "reject", **reason)
        assert texts(await prompt) == ["Then not."]
        result = requests(app)[1].messages[-1].content[0]
    assert result.is_error and reason.get("message", "rejected") in result.text


async def test_what_a_rule_denies_is_not_asked_and_a_denied_tool_not_offered(tmp_path: Path) -> None:
    config = {"permission": {"edit": "deny", "bash": {"*": "deny", "echo *": "ask"}}}
    async with talking(tmp_path, config=config, turns=[[bash("echo x; rm a.txt")], [say()]]) as (app, session):
        assert texts(await app.prompt(session, "Go")) == ["Done."]
        error = (await states(app, session))[0]["error"]
        assert "forbids" in error and '"echo *"' in error and '"edit"' not in error, "the rules of this permission alone"
        assert (app.directory / "a.txt").exists()
        offered = {tool.id for tool in requests(app)[0].tools}
    assert not offered & {"edit", "write", "multiedit"} and {"bash", "read"} <= offered


@pytest.mark.parametrize(
    ("permission", "count", "asked", "is_quick"),
    [
        ("bash", 1, bash("run0 abc"), False),
        ("glob", 1, call("glob", pattern="run0 abc"), True),
        ("glob", 2_000, call("glob", pattern="run0 abc"), False),
        ("glob", 50, call("glob", pattern=f"run0 abc{'x' * 10_000}"), False),
    ],
)
async def test_others_do_not_wait_while_rules_are_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, permission: str, count: int, asked: Any, is_quick: bool
) -> None:
    """A long value, or thousands of rules; a shell command of 300 bytes can have 10,000 spellings."""
    decide, threads = service.decide_permission, list[threading.Thread]()

    def noting(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return decide(*given)

    monkeypatch.setattr(service, "decide_permission", noting)
    rules = {"*0 ab?*": "deny", **{f"run{number} a?c": "deny" for number in range(1, count)}}
    async with talking(tmp_path, config={"permission": {permission: rules}}, turns=[[asked], [say()]]) as (app, session):
        await app.prompt(session, "Go")
        assert "permission rule forbids" in (await states(app, session))[0]["error"]
    assert all((thread is threading.main_thread()) == is_quick for thread in threads) and threads


async def test_an_edit_is_shown_before_it_is_made(tmp_path: Path) -> None:
    async with talking(tmp_path, config={"permission": {"edit": "ask"}}) as (app, session):
        app.provider.add([turns.write(app.directory / "b.txt", "new\n")], [say()])
        prompt = asyncio.create_task(app.prompt(session, "Go"))
        request = await pending(app)
        assert request["permission"] == "edit" and request["patterns"] == ["b.txt"] and "+new" in request["metadata"]["diff"]
        assert not (app.directory / "b.txt").exists()
        await reply(app, request, "once")
        await prompt
        assert (app.directory / "b.txt").read_text() == "new\n"


async def test_a_question_is_asked_and_its_answer_reaches_the_model(tmp_path: Path) -> None:
    questions = [QUESTION, {**QUESTION, "question": "Why?", "multiple": True}]
    async with talking(tmp_path, turns=[[call("question", "c1", questions=questions)], [say("B it is.")]]) as (app, session):
        async with app.events() as events:
            prompt = asyncio.create_task(app.prompt(session, "Ask me"))
            asked = (await events.until("question.asked")).properties
            assert asked["questions"] == questions and asked["tool"]["callID"] == "c1"
            assert [request["id"] for request in await app.get("/question")] == [asked["id"]]
            await app.post(f"/question/{asked['id']}/reply", {"answers": [["B", "own words"]]})
            assert texts(await prompt) == ["B it is."]
            replied = (await events.until("question.replied")).properties
        (tool,) = tools((await app.messages(session))[1])
        assert await app.get("/question") == []
    assert replied == {"sessionID": session, "requestID": asked["id"], "answers": [["B", "own words"]]}
    assert tool["state"]["metadata"]["answers"] == [["B", "own words"]] and tool["state"]["title"] == "Asked 2 questions"
    assert '"Which?"="B, own words", "Why?"="Unanswered"' in tool["state"]["output"]


async def test_a_dismissed_question_stops_the_turn(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[call("question", questions=[QUESTION])], [say("not asked for")]]) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Ask me"))
        request = await pending(app, "question")
        await app.post(f"/question/{request['id']}/reject")
        answer = await prompt
        assert len(requests(app)) == 1
    assert "dismissed" in tools(answer)[0]["state"]["error"] and "error" not in answer["info"]


@pytest.mark.parametrize(
    ("kind", "step"), [("permission", bash("echo one")), ("question", call("question", questions=[QUESTION]))]
)
async def test_an_abort_withdraws_what_was_asked(tmp_path: Path, kind: str, step: dict[str, Any]) -> None:
    async with talking(tmp_path, config=ASK, turns=[[step], [say("Next.")]]) as (app, session):
        async with app.events() as events:
            prompt = asyncio.create_task(app.prompt(session, "Go"))
            await pending(app, kind)
            await app.post(f"/session/{session}/abort")
            assert await app.get(f"/{kind}") == [] and await statuses(app) == {}
            answer = await prompt
            await events.until("permission.replied" if kind == "permission" else "question.rejected")
        assert answer["info"]["error"]["name"] == "MessageAbortedError"
        turns.assert_finished(await app.messages(session))
        assert texts(await app.prompt(session, "Again")) == ["Next."]


async def test_deleting_a_session_withdraws_what_it_asked(tmp_path: Path) -> None:
    async with talking(tmp_path, config=ASK, turns=[[bash("echo one")]]) as (app, session):
        await app.prompt_async(session, "Go")
        await pending(app)
        assert await app.call("DELETE", f"/session/{session}") is True
        assert await app.get("/permission") == [] and await statuses(app) == {}
        await turns.until_done(app, session)
        await app.call("GET", f"/session/{session}", expect=404)


async def test_rules_set_while_a_turn_runs_hold_from_its_next_step_on(tmp_path: Path) -> None:
    changed = asyncio.Event()
    steps = [[{"wait": changed}, bash("echo one")], [bash("echo two")], [say()]]
    async with talking(tmp_path, turns=steps, title="T") as (app, session):
        answering = asyncio.create_task(app.prompt(session, "Go"))
        await turns.until(lambda: requests(app))
        rules = [{"permission": "bash", "pattern": "echo *", "action": "deny"}]
        await app.call("PATCH", f"/session/{session}", {"permission": rules})
        changed.set()
        await answering
        one, two = await states(app, session)
        assert (await app.get(f"/session/{session}"))["permission"] == rules
    assert one["status"] == "completed" and two["status"] == "error"
