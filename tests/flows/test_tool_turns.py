"""Turns with tools: the real ones, on real files, with real snapshots."""

import asyncio
import json
from pathlib import Path

import pytest
from sse_reader import Received
from turns import assert_finished, bash, call, parts, pending, reply, requests, say, states, talking, texts, tools, types, write

from app.providers.base import ToolCallBlock, ToolResultBlock
from app.turn import tool_calls

UNTIL_GO = "while [ ! -e go ]; do sleep 0.02; done"


async def test_a_read_and_its_result_reach_the_model(tmp_path: Path) -> None:
    async with talking(tmp_path) as (app, session):
        file = str(app.directory / "a.txt")
        app.provider.add([say("Reading."), call("read", "c1", filePath=file)], [say("Read.")])
        answer = await app.prompt(session, "Read a.txt")
        user, step, last = await app.messages(session)
        _, second = requests(app)
    assert answer == last and texts(last) == ["Read."]
    assert types(step) == ["step-start", "text", "tool", "step-finish"]
    assert step["info"]["finish"] == "tool-calls" and step["info"]["parentID"] == last["info"]["parentID"] == user["info"]["id"]
    (tool,) = tools(step)
    state = tool["state"]
    assert (tool["tool"], tool["callID"], state["status"], state["title"]) == ("read", "c1", "completed", "a.txt")
    assert state["input"] == {"filePath": file} and "00001| hello" in state["output"] and state["metadata"]["truncated"] is False
    assert state["time"]["start"] <= state["time"]["end"]
    said, result = second.messages[1:]
    assert said.content[1] == ToolCallBlock("c1", "read", {"filePath": file})
    assert result.content == (ToolResultBlock("c1", "read", state["output"]),)


async def test_a_write_leaves_a_patch_and_the_session_s_diff(tmp_path: Path) -> None:
    async with talking(tmp_path, title="T") as (app, session):
        file = str(app.directory / "new.txt")
        app.provider.add([write(file, "one\ntwo\n")], [say()])
        async with app.events() as events:
            await app.prompt(session, "Write")
            await events.until("session.idle")
            edited = await events.until("file.edited")
        told = [place for place, kind in enumerate(events.types) if kind in ("session.diff", "session.updated")]
        assert events.types.index("session.idle") > max(told)
        assert (app.directory / "new.txt").read_text() == "one\ntwo\n"
        user, step, _ = await app.messages(session)
        diff = await app.get(f"/session/{session}/diff")
        stored = await app.get(f"/session/{session}")
    assert edited.properties == {"file": file}
    assert types(step) == ["step-start", "tool", "step-finish", "patch"]
    start, patch = parts(step, "step-start")[0], parts(step, "patch")[0]
    assert patch["hash"] == start["snapshot"] and patch["files"] == [file]
    assert parts(step, "step-finish")[0]["snapshot"] != start["snapshot"]
    assert user["info"]["summary"]["diffs"] == diff
    assert [(each.pop("status"), each.pop("patch").endswith("+one\n+two\n")) for each in diff] == [("added", True)]
    assert diff == [{"file": "new.txt", "before": "", "after": "one\ntwo\n", "additions": 2, "deletions": 0}]
    assert stored["summary"] == {"additions": 2, "deletions": 0, "files": 1}


async def test_calls_of_a_step_run_at_the_same_time(tmp_path: Path) -> None:
    wait = "i=0; while [ ! -e {other} ] && [ $i -lt 500 ]; do sleep 0.02; i=$((i+1)); done; [ -e {other} ] && echo met"
    one, two = (f"touch {mine}; {wait.format(other=other)}" for mine, other in (("one", "two"), ("two", "one")))
    async with talking(tmp_path, turns=[[bash(one, "c1"), bash(two, "c2")], [say()]]) as (app, session):
        await app.prompt(session, "Meet")
        _, step, _ = await app.messages(session)
    assert [tool["state"]["output"].strip() for tool in tools(step)] == ["met", "met"]
    assert [tool["callID"] for tool in tools(step)] == ["c1", "c2"]


async def test_large_files_and_metadata_of_a_step_are_kept_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_calls, "MAX_KEPT_BYTES", 100_000)
    reads = [call("read", f"c{n}", filePath="a.png", offset=n) for n in range(2)]
    writes = [call("write", f"c{n}", filePath="a.txt", content=f"{n}" * 25_000) for n in range(2, 4)]
    async with talking(tmp_path, turns=[reads, [call("read", filePath="a.txt")], writes, [say()]]) as (app, session):
        (app.directory / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(50_000))
        await app.prompt(session, "Look")
        _, first, _, second, _ = await app.messages(session)
    kept, left_out = sorted((tool["state"] for tool in tools(first)), key=lambda state: len(state["output"]))
    assert kept["attachments"] and "attachments" not in left_out and "left out" in left_out["output"]
    assert sorted("filediff" in tool["state"]["metadata"] for tool in tools(second)) == [False, True]
    assert all(tool["state"]["status"] == "completed" for tool in tools(second))


async def test_one_failing_call_does_not_take_the_others_down(tmp_path: Path) -> None:
    calls = [call("read", "c1", filePath="/nowhere/x", x=1), call("read", "c2", filePath="missing.txt"), bash("echo fine", "c3")]
    config = {"permission": {"external_directory": "deny"}}
    async with talking(tmp_path, config=config, turns=[calls, [say()]]) as (app, session):
        await app.prompt(session, "Go")
        _, step, last = await app.messages(session)
        results = requests(app)[1].messages[-1].content
    denied, missing, fine = tools(step)
    assert denied["state"]["error"].startswith("Error: ") and "external_directory" in denied["state"]["error"]
    assert "missing.txt" in missing["state"]["error"]
    assert fine["state"]["output"] == "fine\n"
    assert [result.is_error for result in results] == [True, True, False]
    assert texts(last) == ["Done."]


async def test_calls_that_cannot_be_made_are_reported_to_the_model_and_the_turn_goes_on(tmp_path: Path) -> None:
    """Of an unknown tool, with arguments that cannot be read, or that do not fit."""
    garbage = {"tool": "bash", "raw": '{"command": "echo'}
    calls = [call("dance", "c1", style="tango"), garbage, call("bash", "c3", order="ls"), call("question", questions=[])]
    async with talking(tmp_path, turns=[calls, [say()]]) as (app, session):
        await app.prompt(session, "Dance")
        _, step, last = await app.messages(session)
        _, second = requests(app)
    unknown, unreadable, unfit, empty = tools(step)
    state = unknown["state"]
    assert (unknown["tool"], state["status"], state["title"]) == ("invalid", "completed", "Invalid Tool")
    assert state["input"]["tool"] == "dance" and "dance" in state["output"]
    assert second.messages[-1].content[0].text == state["output"]
    assert unreadable["tool"] == "invalid" and unreadable["state"]["input"]["tool"] == "bash"
    assert unfit["tool"] == "bash" and "The bash tool was called with invalid arguments" in unfit["state"]["error"]
    assert unfit["state"]["input"] == {"order": "ls"} and "at least one question" in empty["state"]["error"]
    assert "invalid" not in {offered.id for offered in second.tools} and texts(last) == ["Done."]


async def test_a_tool_s_name_in_other_letters_is_repaired(tmp_path: Path) -> None:
    """And it counts as a call, whatever the provider says of its end."""
    turns = [[call("Bash", "c1", command="echo hi", description="x"), {"finish": "stop"}], [say()]]
    async with talking(tmp_path, turns=turns) as (app, session):
        async with app.events() as events:
            await app.prompt(session, "Go")
            await events.until("session.idle")
        shown = [event.properties["part"] for event in events.of_type("message.part.updated")]
        _, step, _ = await app.messages(session)
    names = [part["tool"] for part in shown if part["type"] == "tool"]
    assert names[0] == "Bash" and names[-1] == "bash"
    assert tools(step)[0]["tool"] == "bash" and tools(step)[0]["state"]["output"] == "hi\n"
    assert step["info"]["finish"] == "tool-calls"


async def test_a_running_command_shows_its_output(tmp_path: Path) -> None:
    def shows_first(event: Received) -> bool:
        return event.properties.get("part", {}).get("state", {}).get("metadata", {}).get("output") == "first\n"

    async with talking(tmp_path, turns=[[bash(f"echo first; {UNTIL_GO}; echo second")], [say()]]) as (app, session):
        async with app.events() as events:
            await app.prompt_async(session, "Go")
            await events.until(shows_first)
            [running] = await states(app, session)
            assert running["status"] == "running" and running["metadata"]["output"] == "first\n"
            (app.directory / "go").touch()
            await events.until("session.idle")
        [done] = await states(app, session)
    assert done["output"] == "first\nsecond\n" and done["time"]["start"] == running["time"]["start"]


async def test_a_todo_list_is_kept_and_announced(tmp_path: Path) -> None:
    statuses = ("pending", "completed", "cancelled")
    todos = [{"id": each, "content": f"é {each}", "status": each, "priority": "high"} for each in statuses]
    async with talking(tmp_path, turns=[[call("todowrite", todos=todos)], [call("todoread")], [say()]]) as (app, session):
        async with app.events() as events:
            await app.prompt(session, "Plan")
            updated = await events.until("todo.updated")
        assert await app.get(f"/session/{session}/todo") == todos
        wrote, read = await states(app, session)
    assert updated.properties == {"sessionID": session, "todos": todos}
    assert wrote["title"] == read["title"] == "2 todos", "that are not done"
    assert read["metadata"]["todos"] == todos and wrote["output"] == json.dumps(
        read["metadata"]["todos"], indent=2, ensure_ascii=False
    )


async def test_a_todo_list_is_read_as_an_earlier_call_of_the_step_left_it(tmp_path: Path) -> None:
    todos = [{"id": "1", "content": "Think", "status": "pending", "priority": "high"}]
    async with talking(tmp_path, turns=[[call("todowrite", todos=todos), call("todoread")], [say()]]) as (app, session):
        await app.prompt(session, "Plan")
        assert [state["metadata"]["todos"] for state in await states(app, session)] == [todos, todos]


async def test_a_loop_of_the_same_call_over_steps_is_asked_about(tmp_path: Path) -> None:
    turns = [*[[bash("echo again", f"c{n}")] for n in range(3)], [say()]]
    async with talking(tmp_path, turns=turns) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Go"))
        request = await pending(app)
        assert (request["permission"], request["patterns"], request["always"]) == ("doom_loop", ["bash"], ["bash"])
        assert request["metadata"]["tool"] == "bash" and request["tool"]["callID"] == "c2"
        await reply(app, request, "reject", message="Stop that")
        answer = await prompt
        messages = await app.messages(session)
    assert [tool["state"]["status"] for tool in tools(messages)] == ["completed", "completed", "error"]
    assert "Stop that" in tools(messages)[-1]["state"]["error"]
    assert texts(answer) == ["Done."] and "error" not in answer["info"]
    assert_finished(messages)


async def test_a_long_output_is_cut_and_kept_in_a_file_that_can_be_read(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[bash("seq 1 5000")], [say()]]) as (app, session):
        await app.prompt(session, "Count")
        [counted] = await states(app, session)
        path = counted["metadata"]["outputPath"]
        assert counted["metadata"]["truncated"] is True and path in counted["output"]
        assert Path(path).read_text() == "".join(f"{n}\n" for n in range(1, 5001))
        app.provider.add([call("read", filePath=path, offset=4000), call("read", filePath=path, limit=10)], [say()])
        await app.prompt(session, "Read on")
        _, read, cut = await states(app, session)
    assert read["status"] == "completed" and "04001| 4001" in read["output"]
    assert cut["metadata"]["truncated"] is True and "outputPath" not in cut["metadata"], "what the tool has cut itself"
