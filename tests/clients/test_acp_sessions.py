"""Sessions of `opensession acp`: loaded, listed, forked, resumed, closed; modes and options; MCP servers; two editors on one."""

import asyncio
import json
from pathlib import Path
from typing import Any

import acp
import httpx2
import pytest
from acp import schema
from acp_editor import SECONDS, Desk, Editor
from mcp_servers import plain
from polling import until
from running_server import RunningServer, serving_here
from turns import call, say, task


async def test_a_loaded_session_replays_its_conversation_before_the_answer(desk: Desk) -> None:
    async with desk.session() as live:
        for said in ("think", "todo first", "edit a.txt: hello -> goodbye"):
            await live.say(said)
    async with desk.editor() as editor:
        loaded = await editor.load(desk.directory, live.session)
        assert editor.text("user_message_chunk") == "thinktodo firstedit a.txt: hello -> goodbye"
        assert editor.text() == live.text() and editor.text("agent_thought_chunk") == live.text("agent_thought_chunk")
        assert [call["status"] for call in editor.calls().values()] == ["completed"] * 3
        assert list(editor.calls()) == list(live.calls())
        assert [entry.content for entry in editor.of("plan")[-1].entries] == ["first"]
        assert loaded.modes.current_mode_id == "build"
        editor.updates.clear()
        assert await editor.say("long 1") == "end_turn"
        assert editor.of("user_message_chunk") == [] and "tok0" in editor.text()


EDIT = {"filePath": "a.txt", "oldString": "hello", "newString": "goodbye"}
OF_OPENCODE_1_18 = {"additions": 1, "deletions": 1, "patch": "@@ -1 +1 @@"}


@pytest.mark.parametrize(
    ("tool", "given", "metadata", "shown"),
    [
        ("edit", EDIT, {"filediff": {"file": "/a.txt", **OF_OPENCODE_1_18}}, "diff"),
        ("apply_patch", {}, {"files": [{"filePath": "/a.txt", "type": "update", **OF_OPENCODE_1_18}]}, "content"),
        ("apply_patch", {}, {"files": ["a.txt", {"filePath": 1}]}, "content"),
        ("edit", EDIT, {"filediff": {"file": 1, "before": 2}}, "diff"),
        ("ours_own", {}, {"files": 3, "filediff": "none"}, "content"),
        ("bash", {}, {"output": ["hi"]}, "content"),
    ],
)
async def test_a_call_of_an_imported_session_or_of_a_plugin_is_shown(
    desk: Desk, server: RunningServer, tool: str, given: dict[str, Any], metadata: dict[str, Any], shown: str
) -> None:
    async with desk.beside(server.workspace, server.base).session() as editor:
        await editor.say("todo first")
        with httpx2.Client(base_url=server.base) as http:
            messages = http.get(f"/session/{editor.session}/message").json()
            (part,) = (part for message in messages for part in message["parts"] if part["type"] == "tool")
            part |= {"tool": tool, "state": {**part["state"], "input": given, "metadata": metadata}}
            http.patch(f"/session/{editor.session}/message/{part['messageID']}/part/{part['id']}", json=part).raise_for_status()
        editor.updates.clear()
        await editor.load(server.workspace, editor.session)
        (call,) = editor.calls().values()
        assert [each.type for each in call["content"]] == [shown]


async def test_sessions_are_listed_forked_resumed_and_closed(desk: Desk) -> None:
    async with desk.session() as editor:
        agent, where, first = editor.agent, str(desk.directory), editor.session
        await editor.say("long 2")
        fork = (await agent.fork_session(session_id=first, cwd=where)).session_id
        assert {each.session_id for each in (await agent.list_sessions(cwd=where)).sessions} == {first, fork}
        editor.session = fork
        await editor.say("long 1")
        assert editor.text(session_id=fork).split() == ["tok0"]
        await agent.close_session(session_id=first)
        editor.session = first
        with pytest.raises(acp.RequestError) as closed:
            await editor.say("long 1")
        assert closed.value.code == -32002 and "session/load" in str(closed.value)
        editor.updates.clear()
        assert (await agent.resume_session(session_id=first, cwd=where)).modes.available_modes
        assert not any(update.session_update.endswith("_chunk") for _, update in editor.updates)
        await editor.say("long 3")
        assert editor.text(session_id=first).split() == ["tok0", "tok1", "tok2"]
        made = {first, fork, *[await editor.new(desk.directory) for _ in range(100)]}
        page = await agent.list_sessions(cwd=where)
        rest = await agent.list_sessions(cwd=where, cursor=page.next_cursor)
        assert {each.session_id for each in (*page.sessions, *rest.sessions)} == made and rest.next_cursor is None


async def test_a_session_is_deleted_whether_it_is_open_or_gone(desk: Desk) -> None:
    async with desk.raw_editor() as editor:
        session_id = await editor.prompt("run touch begun; sleep 600")
        await until((desk.directory / "begun").exists)
        await editor.call("session/delete", 4, sessionId=session_id)
        assert (await editor.answer_to(3))["result"]["stopReason"] == "cancelled"
        assert (await editor.answer_to(4))["result"] == {}
        await editor.call("session/new", 5, cwd=str(desk.directory), mcpServers=[])
        kept = (await editor.answer_to(5))["result"]["sessionId"]
        for number, gone in enumerate((session_id, "none", "ses_none", f"{kept}/share", f"ses_/../{kept}"), start=6):
            await editor.call("session/delete", number, sessionId=gone)
            assert (await editor.answer_to(number))["result"] == {}, gone
        await editor.call("session/list", 20, cwd=str(desk.directory))
        assert [each["sessionId"] for each in (await editor.answer_to(20))["result"]["sessions"]] == [kept]
        await editor.call("session/delete", 21)
        assert (await editor.answer_to(21))["error"]["code"] == -32602
    assert "Traceback" not in desk.log()


async def test_a_prompt_is_answered_whatever_is_asked_right_behind_it(desk: Desk) -> None:
    async with desk.session() as editor:
        agent, where, opened = editor.agent, str(desk.directory), editor.session
        again = {"session_id": opened, "cwd": where}
        for behind in (
            [agent.close_session(session_id=opened)],
            [agent.load_session(**again), agent.load_session(**again)],
            [agent.resume_session(**again), agent.close_session(session_id=opened), agent.load_session(**again)],
        ):
            turn = editor.begin("long 2000")
            await asyncio.sleep(0)
            await asyncio.gather(*behind)
            async with asyncio.timeout(SECONDS):
                (ended,) = await asyncio.gather(turn, return_exceptions=True)
            assert ended == "cancelled" or isinstance(ended, acp.RequestError)
            await agent.resume_session(**again)


def option(editor: Editor, name: str, value: str) -> Any:
    return editor.agent.set_config_option(session_id=editor.session, config_id=name, value=value)


async def test_the_agent_is_a_mode_and_an_option(desk: Desk) -> None:
    async with desk.editor() as editor:
        made = await editor.agent.new_session(cwd=str(desk.directory), mcp_servers=[])
        editor.session = made.session_id

        def mode(name: str) -> Any:
            return editor.agent.set_session_mode(session_id=editor.session, mode_id=name)

        assert [each.id for each in made.modes.available_modes][:2] == ["build", "plan"]
        options = {each.id: each.current_value for each in made.config_options}
        assert options["mode"] == "build" and options["model"] == "scripted/rules"
        await mode("plan")
        assert editor.of("config_option_update")[-1].config_options[0].current_value == "plan"
        await editor.say("write b.txt: x")
        assert not (desk.directory / "b.txt").exists()
        assert (await option(editor, "mode", "build")).config_options[0].current_value == "build"
        assert editor.of("current_mode_update")[-1].current_mode_id == "build"
        await editor.say("write b.txt: x")
        assert (desk.directory / "b.txt").exists()
        for wrong in (mode("nobody"), option(editor, "model", "no/model"), option(editor, "colour", "red")):
            with pytest.raises(acp.RequestError) as refused:
                await wrong
            assert refused.value.code == -32602


@pytest.mark.parametrize("name", ["nobody", "general"])
async def test_a_default_agent_that_cannot_lead_a_session_keeps_none_away(desk: Desk, name: str) -> None:
    (desk.directory / "opencode.json").write_text(json.dumps({"default_agent": name}))
    async with desk.session() as editor:
        assert await editor.say("long 1") == "end_turn"


async def test_a_model_and_its_variant_are_chosen(desk: Desk) -> None:
    variants = {"high": {"reasoningEffort": "high"}, "low": {"reasoningEffort": "low"}}
    own = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "http://127.0.0.1:9/v1", "apiKey": "x"}}
    config = {"provider": {"own": {**own, "models": {"wise": {"name": "Wise", "variants": variants}}}}}
    desk.variables["OPENCODE_CONFIG_CONTENT"] = json.dumps(config)
    async with desk.session() as editor:
        options = {each.id: each for each in (await option(editor, "model", "own/wise")).config_options}
        assert {one.value for one in options["variant"].options} >= {"default", "high", "low"}
        options = {each.id: each for each in (await option(editor, "variant", "high")).config_options}
        assert options["variant"].current_value == "high"


async def test_an_editors_mcp_servers_are_of_its_session(desk: Desk) -> None:
    def given(value: str) -> schema.McpServerStdio:
        command, *arguments = plain()["command"]
        variable = schema.EnvVariable(name="WHOSE", value=value)
        return schema.McpServerStdio(name="notes", command=command, args=arguments, env=[variable])

    async with desk.editor() as editor:
        first, second = [await editor.new(desk.directory, given(name)) for name in ("first", "second")]
        third = await editor.new(desk.directory)
    one, two = (call(f"notes-acp-{session[-8:]}_environment") for session in (first, second))
    desk.script([one, two], [say("1")], [two], [say("2")], [one], [say("3")])
    async with desk.editor() as editor:
        for session, servers in ((first, [given("first")]), (second, [given("second")]), (third, [])):
            await editor.agent.resume_session(cwd=str(desk.directory), session_id=session, mcp_servers=servers)
        for editor.session in (first, second, third):
            await editor.say("go")
        firsts, others, seconds, none = editor.calls().values()
        assert firsts["status"] == "completed" and "WHOSE" in firsts["raw_output"]["output"]
        assert seconds["status"] == "completed"
        assert others["status"] == none["status"] == "failed"
        assert editor.asked == []


async def test_an_mcp_server_that_fails_does_not_keep_a_session_away(desk: Desk) -> None:
    async with desk.editor() as editor:
        await editor.new(desk.directory, schema.McpServerStdio(name="broken", command="/no/such/program", args=[], env=[]))
        assert await editor.say("long 1") == "end_turn"
        await until(lambda: "broken" in desk.log())


async def test_an_mcp_server_that_cannot_be_given_makes_no_session_and_leaves_the_open_one(desk: Desk) -> None:
    only_the_editors = schema.AcpMcpServer(type="acp", name="inner", server_id="1")
    async with desk.session() as editor:
        where, open_ = str(desk.directory), editor.session
        for opening in (
            editor.agent.new_session(cwd=where, mcp_servers=[only_the_editors]),
            editor.agent.load_session(cwd=where, session_id=open_, mcp_servers=[only_the_editors]),
            editor.agent.fork_session(cwd=where, session_id=open_, mcp_servers=[only_the_editors]),
        ):
            with pytest.raises(acp.RequestError) as refused:
                await opening
            assert refused.value.code == -32602
        assert [each.session_id for each in (await editor.agent.list_sessions(cwd=where)).sessions] == [open_]
        assert await editor.say("long 1") == "end_turn"


async def test_an_mcp_server_of_any_name_is_closed_with_its_session(desk: Desk, server: RunningServer) -> None:
    """Which may be closed twice at the same time."""
    command, *arguments = plain()["command"]
    given = schema.McpServerStdio(name="@own/tools?", command=command, args=arguments, env=[])
    async with desk.beside(server.workspace, server.base).editor() as editor:
        session_id = await editor.new(server.workspace, given)
        await asyncio.gather(*(editor.agent.close_session(session_id=session_id) for _ in range(2)))
    status = httpx2.get(f"{server.base}/mcp").raise_for_status().json()
    assert [each["status"] for name, each in status.items() if name.startswith("_own_tools_-acp-")] == ["disabled"]


async def test_two_editors_on_one_session_see_each_others_turns(desk: Desk, server: RunningServer) -> None:
    near = desk.beside(server.workspace, server.base)
    async with near.session() as first, near.editor() as second:
        await second.load(near.directory, first.session)
        await first.say("long 3")
        await second.until(lambda: "tok2" in second.text())
        assert second.text("user_message_chunk") == "long 3" and first.of("user_message_chunk") == []
        await second.agent.set_session_mode(session_id=second.session, mode_id="plan")
        await second.say("think")
        await first.until(lambda: first.text("user_message_chunk") == "think" and first.of("agent_thought_chunk"))
        assert first.of("current_mode_update")[-1].current_mode_id == "plan"


async def test_an_editor_that_comes_later_is_asked_what_the_session_and_its_subagent_have_asked(
    desk: Desk, tmp_path: Path
) -> None:
    """And may answer it."""
    read = call("read", filePath="/etc/hosts")
    desk.script([read], [say("Read.")], [task()], [read], [say("The subagent is done.")], [say("All done.")])
    with serving_here(tmp_path / "far", **desk.variables) as server:
        near = desk.beside(server.workspace, server.base)
        async with near.session(withholds=True) as first:
            for _ in ("by itself", "by its subagent"):
                turn, asked = first.begin("go"), len(first.asked)
                await first.until(lambda asked=asked: len(first.asked) > asked)
                async with near.editor() as second:
                    await second.load(near.directory, first.session)
                    assert await turn == "end_turn"
                    ((where, asked_of, _),) = second.asked
                    assert where == first.session and "/etc" in asked_of.title


async def test_a_login_is_needed_where_the_server_has_one(desk: Desk, tmp_path: Path) -> None:
    with serving_here(tmp_path / "guarded", OPENCODE_SERVER_PASSWORD="secret") as server:
        near = desk.beside(server.workspace, server.base)
        async with near.editor() as editor:
            with pytest.raises(acp.RequestError) as refused:
                await editor.new(near.directory)
            assert refused.value.code == -32000 and "OPENSESSION_TOKEN" in str(refused.value)
        near.variables["OPENCODE_SERVER_PASSWORD"] = "secret"
        async with near.session() as editor:
            await editor.say("long 2")
            assert editor.text().split() == ["tok0", "tok1"]
