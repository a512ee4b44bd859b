"""Sessions of `opensession acp`: loaded, listed, forked, resumed, closed; modes and options; MCP servers; two editors on one."""

import asyncio
import json
from pathlib import Path
from typing import Any

import acp
import pytest
from acp import schema
from acp_editor import Desk, Editor, text
from mcp_servers import plain
from running_server import RunningServer, new_workspace, serving, this_checkout


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "home").mkdir()
    return Desk(new_workspace(tmp_path / "workspace"), tmp_path / "home")


@pytest.fixture
def server(tmp_path: Path) -> Any:
    command, needed = this_checkout()
    (tmp_path / "far").mkdir()
    with serving(command, tmp_path / "far", needed) as running:
        yield running


def attached(desk: Desk, server: RunningServer) -> tuple[Desk, tuple[str, str]]:
    return Desk(server.workspace, desk.home), ("--attach", server.base)


async def test_a_loaded_session_replays_its_conversation_before_the_answer(desk: Desk) -> None:
    async with desk.editor() as (agent, editor, _):
        session_id = (await agent.new_session(cwd=str(desk.directory), mcp_servers=[])).session_id
        for said in ("think", "todo first", "edit a.txt: hello -> goodbye"):
            await agent.prompt(session_id=session_id, prompt=text(said))
        live = editor
    async with desk.editor() as (agent, editor, _):
        loaded = await agent.load_session(cwd=str(desk.directory), session_id=session_id, mcp_servers=[])
        assert editor.text("user_message_chunk") == "thinktodo firstedit a.txt: hello -> goodbye"
        assert editor.text() == live.text() and editor.text("agent_thought_chunk") == live.text("agent_thought_chunk")
        assert [call["status"] for call in editor.calls().values()] == ["completed"] * 3
        assert list(editor.calls()) == list(live.calls())
        assert [entry.content for entry in editor.of("plan")[-1].entries] == ["first"]
        assert loaded.modes.current_mode_id == "build"
        before = len(editor.updates)
        answer = await agent.prompt(session_id=session_id, prompt=text("long 1"))
        assert answer.stop_reason == "end_turn" and len(editor.of("user_message_chunk")) == 3
        assert "tok0" in "".join(u.content.text for _, u in editor.updates[before:] if u.session_update == "agent_message_chunk")


async def test_sessions_are_listed_forked_resumed_and_closed(desk: Desk) -> None:
    async with desk.editor() as (agent, editor, _):
        where = str(desk.directory)
        first = (await agent.new_session(cwd=where, mcp_servers=[])).session_id
        await agent.prompt(session_id=first, prompt=text("long 2"))
        fork = (await agent.fork_session(session_id=first, cwd=where)).session_id
        assert {each.session_id for each in (await agent.list_sessions(cwd=where)).sessions} == {first, fork}
        await agent.prompt(session_id=fork, prompt=text("long 1"))
        assert editor.text(session_id=fork).split() == ["tok0"]
        await agent.close_session(session_id=first)
        with pytest.raises(acp.RequestError) as closed:
            await agent.prompt(session_id=first, prompt=text("long 1"))
        assert closed.value.code == -32002 and "session/load" in str(closed.value)
        told = len(editor.updates)
        resumed = await agent.resume_session(session_id=first, cwd=where)
        assert resumed.modes.available_modes and not any(
            update.session_update.endswith("_chunk") for _, update in editor.updates[told:]
        )
        await agent.prompt(session_id=first, prompt=text("long 3"))
        assert editor.text(session_id=first).split() == ["tok0", "tok1", "tok0", "tok1", "tok2"]


async def test_many_sessions_are_listed_page_by_page(desk: Desk) -> None:
    async with desk.editor() as (agent, _, __):
        made = {(await agent.new_session(cwd=str(desk.directory), mcp_servers=[])).session_id for _ in range(102)}
        first = await agent.list_sessions(cwd=str(desk.directory))
        second = await agent.list_sessions(cwd=str(desk.directory), cursor=first.next_cursor)
        assert {each.session_id for each in (*first.sessions, *second.sessions)} == made and second.next_cursor is None


async def test_the_agent_is_a_mode_and_an_option(desk: Desk) -> None:
    async with desk.editor() as (agent, editor, _):
        made = await agent.new_session(cwd=str(desk.directory), mcp_servers=[])
        assert [mode.id for mode in made.modes.available_modes][:2] == ["build", "plan"]
        options = {each.id: each for each in made.config_options}
        assert options["mode"].current_value == "build" and options["model"].current_value == "scripted/rules"
        await agent.set_session_mode(session_id=made.session_id, mode_id="plan")
        assert editor.of("config_option_update")[-1].config_options[0].current_value == "plan"
        await agent.prompt(session_id=made.session_id, prompt=text("write b.txt: x"))
        assert not (desk.directory / "b.txt").exists()
        changed = await agent.set_config_option(session_id=made.session_id, config_id="mode", value="build")
        assert changed.config_options[0].current_value == "build"
        assert editor.of("current_mode_update")[-1].current_mode_id == "build"
        await agent.prompt(session_id=made.session_id, prompt=text("write b.txt: x"))
        assert (desk.directory / "b.txt").exists()
        for wrong in (
            agent.set_session_mode(session_id=made.session_id, mode_id="nobody"),
            agent.set_config_option(session_id=made.session_id, config_id="model", value="no/model"),
            agent.set_config_option(session_id=made.session_id, config_id="colour", value="red"),
        ):
            with pytest.raises(acp.RequestError) as refused:
                await wrong
            assert refused.value.code == -32602


async def test_a_model_and_its_variant_are_chosen(desk: Desk) -> None:
    variants = {"high": {"reasoningEffort": "high"}, "low": {"reasoningEffort": "low"}}
    own = {"npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "http://127.0.0.1:9/v1", "apiKey": "x"}}
    models = {"wise": {"name": "Wise", "variants": variants}}
    desk.variables["OPENCODE_CONFIG_CONTENT"] = json.dumps({"provider": {"own": {**own, "models": models}}})
    async with desk.editor() as (agent, _, __):
        made = await agent.new_session(cwd=str(desk.directory), mcp_servers=[])
        chosen = await agent.set_config_option(session_id=made.session_id, config_id="model", value="own/wise")
        options = {each.id: each for each in chosen.config_options}
        assert {one.value for one in options["variant"].options} >= {"default", "high", "low"}
        chosen = await agent.set_config_option(session_id=made.session_id, config_id="variant", value="high")
        assert {each.id: each.current_value for each in chosen.config_options}["variant"] == "high"


async def test_an_editors_mcp_servers_are_of_its_session(desk: Desk) -> None:
    def given(name: str, value: str) -> schema.McpServerStdio:
        command, *arguments = plain()["command"]
        return schema.McpServerStdio(
            name=name, command=command, args=arguments, env=[schema.EnvVariable(name="WHOSE", value=value)]
        )

    where = str(desk.directory)
    async with desk.editor() as (agent, editor, _):
        first = (await agent.new_session(cwd=where, mcp_servers=[given("notes", "first")])).session_id
        second = (await agent.new_session(cwd=where, mcp_servers=[given("notes", "second")])).session_id
        third = (await agent.new_session(cwd=where, mcp_servers=[])).session_id
    names = {session_id: f"notes-acp-{session_id[-8:]}_environment" for session_id in (first, second)}
    desk.script(
        [{"tool": names[first]}, {"tool": names[second]}],
        [{"text": "one"}],
        [{"tool": names[second]}],
        [{"text": "two"}],
        [{"tool": names[first]}],
        [{"text": "three"}],
    )
    async with desk.editor() as (agent, editor, _):
        await agent.resume_session(cwd=where, session_id=first, mcp_servers=[given("notes", "first")])
        await agent.resume_session(cwd=where, session_id=second, mcp_servers=[given("notes", "second")])
        await agent.resume_session(cwd=where, session_id=third)
        for session_id in (first, second, third):
            await agent.prompt(session_id=session_id, prompt=text("go"))
        own, others, seconds, none = editor.calls().values()
        assert own["status"] == "completed" and "WHOSE" in own["raw_output"]["output"]
        assert seconds["status"] == "completed"
        assert others["status"] == none["status"] == "failed"
        assert editor.asked == []


async def test_an_mcp_server_that_fails_does_not_keep_a_session_away(desk: Desk) -> None:
    broken = schema.McpServerStdio(name="broken", command="/no/such/program", args=[], env=[])
    async with desk.editor() as (agent, _, __):
        made = await agent.new_session(cwd=str(desk.directory), mcp_servers=[broken])
        assert (await agent.prompt(session_id=made.session_id, prompt=text("long 1"))).stop_reason == "end_turn"
    assert "broken" in desk.log()


async def test_two_editors_on_one_session_see_each_others_turns(desk: Desk, server: RunningServer) -> None:
    near, attach = attached(desk, server)
    async with near.editor(*attach) as (one, first, _), near.editor(*attach) as (two, second, _):
        session_id = (await one.new_session(cwd=str(near.directory), mcp_servers=[])).session_id
        await two.load_session(cwd=str(near.directory), session_id=session_id, mcp_servers=[])
        await one.prompt(session_id=session_id, prompt=text("long 3"))
        await second.until(lambda: "tok2" in second.text())
        assert second.text("user_message_chunk") == "long 3" and first.of("user_message_chunk") == []
        await two.set_session_mode(session_id=session_id, mode_id="plan")
        await two.prompt(session_id=session_id, prompt=text("think"))
        await first.until(lambda: first.text("user_message_chunk") == "think" and first.of("agent_thought_chunk"))
        assert first.of("current_mode_update")[-1].current_mode_id == "plan"


async def test_either_editor_may_answer_what_is_asked(desk: Desk, server: RunningServer) -> None:
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def silent() -> str:
        return await never

    near, attach = attached(desk, server)
    asked = Editor(permits=lambda call, options: silent())
    async with near.editor(*attach, editor=asked) as (one, _, __), near.editor(*attach) as (two, second, ___):
        session_id = (await one.new_session(cwd=str(near.directory), mcp_servers=[])).session_id
        turn = asyncio.create_task(one.prompt(session_id=session_id, prompt=text("read /etc/hosts")))
        await asked.until(lambda: asked.asked)
        await two.load_session(cwd=str(near.directory), session_id=session_id, mcp_servers=[])
        assert (await turn).stop_reason == "end_turn" and len(second.asked) == 1
        never.set_result("once")


async def test_an_editor_that_comes_later_is_asked_what_a_subagent_has_asked(desk: Desk, tmp_path: Path) -> None:
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def silent() -> str:
        return await never

    task = {"description": "Looks", "prompt": "look", "subagent_type": "general"}
    desk.script(
        [{"tool": "task", "args": task}],
        [{"tool": "read", "args": {"filePath": "/etc/hosts"}}],
        [{"text": "The subagent is done."}],
        [{"text": "All done."}],
    )
    command, needed = this_checkout()
    (tmp_path / "far").mkdir()
    asked = Editor(permits=lambda call, options: silent())
    with serving(command, tmp_path / "far", {**needed, "OPENSESSION_SCRIPT": desk.variables["OPENSESSION_SCRIPT"]}) as server:
        near, attach = attached(desk, server)
        async with near.editor(*attach, editor=asked) as (one, _, __), near.editor(*attach) as (two, second, ___):
            session_id = (await one.new_session(cwd=str(near.directory), mcp_servers=[])).session_id
            turn = asyncio.create_task(one.prompt(session_id=session_id, prompt=text("go")))
            await asked.until(lambda: asked.asked)
            await two.load_session(cwd=str(near.directory), session_id=session_id, mcp_servers=[])
            assert (await turn).stop_reason == "end_turn"
            ((where, call, ____),) = second.asked
            assert where == session_id and "/etc" in call.title
            never.set_result("once")


async def test_a_login_is_needed_where_the_server_has_one(desk: Desk, tmp_path: Path) -> None:
    command, needed = this_checkout()
    (tmp_path / "guarded").mkdir()
    with serving(command, tmp_path / "guarded", {**needed, "OPENCODE_SERVER_PASSWORD": "secret"}) as server:
        near, attach = attached(desk, server)
        async with near.editor(*attach) as (agent, _, __):
            with pytest.raises(acp.RequestError) as refused:
                await agent.new_session(cwd=str(near.directory), mcp_servers=[])
            assert refused.value.code == -32000 and "OPENSESSION_TOKEN" in str(refused.value)
        near.variables["OPENCODE_SERVER_PASSWORD"] = "secret"
        async with near.editor(*attach) as (agent, editor, _):
            session_id = (await agent.new_session(cwd=str(near.directory), mcp_servers=[])).session_id
            await agent.prompt(session_id=session_id, prompt=text("long 2"))
            assert editor.text().split() == ["tok0", "tok1"]
