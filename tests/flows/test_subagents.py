"""Tasks given to other agents: sessions of their own, with never more rights than their parent's."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import turns
from running_app import RunningApp
from turns import assert_finished, bash, call, parts, requests, say, states, statuses, talking, task, texts, tools, until

from app.permissions.rules import evaluate
from app.providers.base import ModelRequest, ToolTurn
from app.providers.scripted import ScriptedTurn, parse_turn
from app.schema.permission import Rule
from app.turn.intake import prompts


async def children(app: RunningApp, session: str) -> list[dict[str, Any]]:
    return await app.get(f"/session/{session}/children")


def action(session: dict[str, Any], permission: str, pattern: str = "*") -> str:
    return evaluate(permission, pattern, [Rule.model_validate(rule) for rule in session["permission"]]).action


async def test_a_task_is_done_in_a_session_of_its_own(tmp_path: Path) -> None:
    steps = [[task("Count the files")], [bash("ls | wc -l"), call("glob", pattern="*")], [say("Just one.")]]
    steps.append([say("There is one.")])
    async with talking(tmp_path, turns=steps) as (app, session):
        answer = await app.prompt(session, "How many files?")
        (child,) = await children(app, session)
        _, step, _ = await app.messages(session)
        asked, worked, said = await app.messages(child["id"])
        assert await statuses(app) == {}
        last = requests(app)[-1]
    assert texts(answer) == ["There is one."]
    assert child["parentID"] == session and child["title"] == "Look (@general subagent)"
    assert asked["info"]["agent"] == "general" and texts(asked) == ["Count the files"]
    assert asked["info"]["tools"] == {"todowrite": False, "todoread": False, "task": False}
    assert [action(child, name) for name in ("todowrite", "todoread", "task")] == ["deny"] * 3
    state = tools(step)[0]["state"]
    assert state["title"] == "Look"
    assert state["output"] == f"Just one.\n\n<task_metadata>\nsession_id: {child['id']}\n</task_metadata>"
    titles = {"bash": "Runs it", "glob": ""}
    assert state["metadata"] == {
        "parentSessionId": session,
        "sessionId": child["id"],
        "model": {"providerID": "scripted", "modelID": "rules"},
        "summary": [
            {"id": each["id"], "tool": each["tool"], "state": {"status": "completed", "title": titles[each["tool"]]}}
            for each in tools(worked)
        ],
        "truncated": False,
    }
    assert texts(said) == ["Just one."]
    assert last.messages[-1].content[0].text == state["output"]


def delegating(request: ModelRequest) -> ScriptedTurn:
    """Two tasks, and when they are done an answer."""
    return parse_turn([say()] if isinstance(request.messages[-1], ToolTurn) else [task(), task()])


async def test_subagents_that_start_subagents_come_to_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompts, "MAX_SUBAGENTS", 3)
    allowed = {"permission": {"task": "allow"}}
    async with talking(tmp_path, config=allowed, otherwise=delegating, patience=60) as (app, session):
        await app.prompt(session, "go")
        made = await app.get("/session")
        calls = [part for each in made for part in tools(await app.messages(each["id"]))]
    assert 4 <= len(made) <= 15
    assert any("3 subagents run" in call["state"].get("error", "") for call in calls)


async def test_a_call_that_runs_names_its_task_and_session(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[task()], [say()], [say()]]) as (app, session), app.events() as events:
        await app.prompt(session, "go")
        await events.until("session.idle")
        (child,) = await children(app, session)
        await turns.titled(app, session)
        assert len([request for request in app.provider.requests if "title" in request.model.id]) == 1, "none for the task's"
    calls = [event.properties["part"] for event in events.seen if event.properties.get("part", {}).get("tool") == "task"]
    shown = [part["state"] for part in calls if part["state"]["status"] == "running" and "metadata" in part["state"]]
    assert {state["title"] for state in shown} == {"Look"}
    assert {state["metadata"]["sessionId"] for state in shown} == {child["id"]}


async def test_a_task_may_do_no_more_than_its_parent_and_has_no_tool_that_is_kept_for_primary_agents(tmp_path: Path) -> None:
    config = {
        "agent": {"careful": {"mode": "primary", "permission": {"bash": {"*": "deny", "ls *": "allow"}, "edit": "deny"}}},
        "experimental": {"primary_tools": ["webfetch"]},
    }
    calls = [bash("touch x", "c1"), bash("ls", "c2"), call("write", "c3", filePath="y", content="y")]
    async with talking(tmp_path, config=config, turns=[[task("Change")], calls, [say()], [say()]]) as (app, session):
        await app.prompt(session, "Go", agent="careful")
        (child,) = await children(app, session)
        assert [state["status"] for state in await states(app, child["id"])] == ["error", "completed", "error"]
        assert not (app.directory / "x").exists() and not (app.directory / "y").exists()
        offered = ["webfetch" in {tool.id for tool in request.tools} for request in requests(app)]
    assert action(child, "edit", "y") == "deny" and action(child, "bash", "touch x") == "deny"
    assert offered == [True, False, False, True]


async def test_a_task_is_asked_for_and_what_it_asks_carries_its_own_session(tmp_path: Path) -> None:
    config = {"permission": {"bash": "ask", "task": "ask"}}
    steps = [[task()], [bash("echo hi")], [say("In.")], [say("Out.")]]
    async with talking(tmp_path, config=config, turns=steps) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Go"))
        request = await turns.pending(app)
        assert (request["permission"], request["patterns"], request["always"]) == ("task", ["general"], ["*"])
        assert request["metadata"].items() >= {"description": "Look", "subagent_type": "general"}.items()
        await turns.reply(app, request)
        request = await turns.pending(app)
        (child,) = await children(app, session)
        assert request["sessionID"] == child["id"]
        assert set(await statuses(app)) == {session, child["id"]}
        await turns.reply(app, request)
        assert texts(await prompt) == ["Out."]


async def test_a_task_can_be_taken_up_again_and_another_session_cannot(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[task("one")], [say("First.")], [say("Done.")]]) as (app, session):
        await app.prompt(session, "Go")
        (child,) = await children(app, session)
        other = (await app.create_session())["id"]
        wrong = [task("x", session_id=other), task("y", session_id="ses_nope"), task("z", agent="nobody")]
        app.provider.add([task("two", session_id=child["id"])], [say("Second.")], [say("Done.")], wrong, [say("Then not.")])
        await app.prompt(session, "More")
        said = [text for message in await app.messages(child["id"]) for text in texts(message)]
        assert texts(await app.prompt(session, "More")) == ["Then not."]
        _, _, *refused = await states(app, session)
        assert [made["id"] for made in await children(app, session)] == [child["id"]] and await app.messages(other) == []
    assert said == ["one", "First.", "two", "Second."]
    assert [state["status"] for state in refused] == ["error"] * 3
    assert all("is not a task of this conversation" in state["error"] for state in refused[:2])
    assert "nobody is not a valid agent type" in refused[2]["error"]


async def test_a_task_that_fails_is_an_error_of_its_call_and_the_turn_goes_on(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[task()], [{"status": 400, "message": "no"}], [say("Then without.")]]) as (app, session):
        assert texts(await app.prompt(session, "Go")) == ["Then without."]
        [state] = await states(app, session)
    assert state["error"] == f"Error: The subagent failed (session_id: {state['metadata']['sessionId']}): no"


async def test_tasks_of_a_step_are_done_at_the_same_time(tmp_path: Path) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    inner = [[say("a"), {"wait": gates[0]}], [say("b"), {"wait": gates[1]}]]
    async with talking(tmp_path, turns=[[task("a"), task("b")], *inner, [say("Both.")]]) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Go"))
        await until(lambda: len(requests(app)) == 3)
        assert len(await statuses(app)) == 3
        for gate in gates:
            gate.set()
        assert texts(await prompt) == ["Both."]
        assert len(await children(app, session)) == 2


async def test_aborting_a_task_alone_is_an_error_of_its_call(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with talking(tmp_path, turns=[[task()], [say("Working"), {"wait": gate}], [say("Then without.")]]) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Go"))
        await until(lambda: len(requests(app)) == 2)
        (child,) = await children(app, session)
        await app.post(f"/session/{child['id']}/abort")
        assert texts(await prompt) == ["Then without."]
        assert_finished(await app.messages(session))
        assert [state["status"] for state in await states(app, session)] == ["error"]


async def test_a_subtask_of_the_prompt_needs_no_permission(tmp_path: Path) -> None:
    config = {"permission": {"task": "deny"}}
    part = {"type": "subtask", "prompt": "Look around", "description": "Look", "agent": "general"}
    async with talking(tmp_path, config=config, turns=[[say("Seen.")], [say("Done.")]]) as (app, session):
        answer = await app.post(f"/session/{session}/message", {"parts": [part]})
        user, step, last = await app.messages(session)
        (child,) = await children(app, session)
    assert answer == last and texts(last) == ["Done."]
    assert step["info"]["agent"] == "general" and step["info"]["finish"] == "tool-calls"
    (tool,) = parts(step, "tool")
    assert tool["tool"] == "task" and tool["state"]["output"].startswith("Seen.") and child["id"] in tool["state"]["output"]
    assert step["info"]["parentID"] == last["info"]["parentID"] == user["info"]["id"]
