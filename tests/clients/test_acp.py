"""`opensession acp` driven by the SDK's own client: what a turn shows, what it asks, how it ends."""

import asyncio
import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import acp
import pytest
from acp_editor import FORMS, READS, Desk, Editor, children_of, is_alive, text
from running_server import new_workspace

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "home").mkdir()
    return Desk(new_workspace(tmp_path / "workspace"), tmp_path / "home")


async def new(agent: Any, desk: Desk, **more: Any) -> str:
    session_id: str = (
        await agent.new_session(cwd=str(desk.directory), mcp_servers=more.pop("mcp_servers", []), **more)
    ).session_id
    return session_id


async def test_a_turn_is_shown_whole_and_in_order_before_its_answer(desk: Desk) -> None:
    desk.script(
        [
            {"reasoning": "Let me look."},
            {"text": "Two files at once."},
            {"tool": "read", "args": {"filePath": "a.txt"}},
            {"tool": "bash", "args": {"command": "echo hi", "description": "Says hi"}},
        ],
        [{"tool": "write", "args": {"filePath": "new.txt", "content": "fresh\n"}}],
        [{"tool": "edit", "args": {"filePath": "a.txt", "oldString": "hello", "newString": "goodbye"}}],
        [{"tool": "write", "args": {"filePath": "a.txt", "content": "all new\n"}}],
        [{"text": "Done.", "chunks": 1}],
    )
    async with desk.editor() as (agent, editor, _):
        session_id = await new(agent, desk)
        answer = await agent.prompt(session_id=session_id, prompt=text("go"))
        assert answer.stop_reason == "end_turn" and answer.usage.output_tokens == 100
        assert editor.text() == "Two files at once.Done." and editor.text("agent_thought_chunk") == "Let me look."
        calls = list(editor.calls().values())
        assert [(call["kind"], call["status"]) for call in calls] == [
            ("read", "completed"),
            ("execute", "completed"),
            *[("edit", "completed")] * 3,
        ]
        read, bash, created, edited, written = calls
        assert read["locations"][0].path == str(desk.directory / "a.txt") and read["raw_input"] == {"filePath": "a.txt"}
        assert bash["title"] == "echo hi" and bash["content"][0].content.text == "```console\nhi\n```"
        assert _diff(created) == (str(desk.directory / "new.txt"), None, "fresh\n")
        assert _diff(edited) == (str(desk.directory / "a.txt"), "hello\nworld\n", "goodbye\nworld\n")
        assert _diff(written) == (str(desk.directory / "a.txt"), "goodbye\nworld\n", "all new\n")
        assert editor.of("user_message_chunk") == []


def _diff(call: dict[str, Any]) -> tuple[str, str | None, str]:
    (shown,) = [content for content in call["content"] if content.type == "diff"]
    return shown.path, shown.old_text, shown.new_text


async def test_initialize_says_what_there_is(desk: Desk) -> None:
    async with desk.editor() as (agent, _, _process):
        said = await agent.initialize(protocol_version=1)
        assert said.protocol_version == 1 and said.agent_info.name == "opensession" and said.auth_methods == []
        offered = said.agent_capabilities
        assert offered.load_session and offered.prompt_capabilities.image and offered.prompt_capabilities.embedded_context
        assert offered.mcp_capabilities.http and not offered.prompt_capabilities.audio
        sessions = offered.session_capabilities
        assert all(each is not None for each in (sessions.list, sessions.fork, sessions.resume, sessions.close))


@pytest.mark.parametrize("cwd", ["relative", "/no/such/directory", "/etc"])
async def test_a_directory_that_is_not_there_or_not_allowed_is_refused(desk: Desk, cwd: str) -> None:
    async with desk.editor() as (agent, _, __):
        with pytest.raises(acp.RequestError) as refused:
            await agent.new_session(cwd=cwd, mcp_servers=[])
        assert refused.value.code == -32602
        assert cwd in f"{refused.value} {refused.value.data}"
        assert (await agent.list_sessions()).sessions == []


async def test_a_word_behind_a_slash_that_is_no_command_goes_to_the_model(desk: Desk) -> None:
    async with desk.editor() as (agent, editor, _):
        session_id = await new(agent, desk)
        await agent.prompt(session_id=session_id, prompt=text("/etc/hosts is what?"))
        assert "“/etc/hosts is what?” is not a command I know." in editor.text()


async def test_commands_are_offered_and_run(desk: Desk) -> None:
    commands = desk.directory / ".opencode" / "command"
    commands.mkdir(parents=True)
    (commands / "count.md").write_text("---\ndescription: Counts\n---\nlong $ARGUMENTS")
    async with desk.editor() as (agent, editor, _):
        session_id = await new(agent, desk)
        (offered,) = await editor.until(lambda: editor.of("available_commands_update"))
        names = {command.name: command for command in offered.available_commands}
        assert names["count"].description == "Counts" and names["count"].input.root.hint and "compact" in names
        answer = await agent.prompt(session_id=session_id, prompt=text("/count 3"))
        assert answer.stop_reason == "end_turn" and editor.text().split() == ["tok0", "tok1", "tok2"]
        assert (await agent.prompt(session_id=session_id, prompt=text("/compact"))).stop_reason == "end_turn"


async def test_images_and_resources_reach_the_model(desk: Desk) -> None:
    (desk.directory / "linked.md").write_text("what is linked\nsecond line\n")
    async with desk.editor() as (agent, _editor, _):
        session_id = await new(agent, desk)
        link = acp.resource_link_block("linked.md", f"{(desk.directory / 'linked.md').as_uri()}#L1:1")
        embedded = acp.resource_block(acp.embedded_text_resource("file:///x/notes.md", "what is embedded"))
        await agent.prompt(session_id=session_id, prompt=[*text("long 1"), acp.image_block(PIXEL, "image/png"), link, embedded])
        async with desk.editor() as (second, reader, _):
            await second.load_session(cwd=str(desk.directory), session_id=session_id, mcp_servers=[])
            (image,) = [u.content for u in reader.of("user_message_chunk") if u.content.type == "image"]
            assert image.data == PIXEL
        stored = _stored_texts(desk, session_id)
        assert any("what is linked" in each and "second line" not in each for each in stored)
        assert any("what is embedded" in each for each in stored)


def _stored_texts(desk: Desk, session_id: str) -> list[str]:
    command = [sys.executable, "-m", "app.cli", "session", "show", session_id, "--format", "json"]
    done = subprocess.run(command, cwd=desk.directory, env=desk.environment(), capture_output=True, check=True)
    messages = json.loads(done.stdout)["messages"]
    return [part["text"] for message in messages for part in message["parts"] if part["type"] == "text"]


async def test_todos_are_the_plan(desk: Desk) -> None:
    async with desk.editor() as (agent, editor, _):
        session_id = await new(agent, desk)
        await agent.prompt(session_id=session_id, prompt=text("todo first, second"))
        plan = editor.of("plan")[-1]
        assert [(entry.content, entry.status) for entry in plan.entries] == [("first", "pending"), ("second", "pending")]


@pytest.mark.parametrize(("chosen", "status"), [("once", "completed"), ("always", "completed"), ("reject", "failed")])
async def test_a_permission_is_asked_with_its_reason_and_the_answer_holds(desk: Desk, chosen: str, status: str) -> None:
    editor = Editor(permits=lambda call, options: chosen)
    async with desk.editor(editor=editor) as (agent, _, __):
        session_id = await new(agent, desk)
        answer = await agent.prompt(session_id=session_id, prompt=text("read /etc/hosts"))
        assert answer.stop_reason == "end_turn"
        ((where, call, options),) = editor.asked
        assert where == session_id and [option.kind for option in options] == ["allow_once", "allow_always", "reject_once"]
        assert "/etc/*" in options[1].name and "outside the project" in call.content[-1].content.text
        (shown,) = editor.calls().values()
        assert call.tool_call_id == shown["tool_call_id"] and shown["status"] == status
        await agent.prompt(session_id=session_id, prompt=text("read /etc/hosts"))
        assert len(editor.asked) == (1 if chosen == "always" else 2)


async def test_an_edit_that_is_asked_about_shows_its_diff(desk: Desk) -> None:
    (desk.directory / "opencode.json").write_text('{"permission": {"edit": "ask"}}')
    editor = Editor()
    async with desk.editor(editor=editor) as (agent, _, __):
        session_id = await new(agent, desk)
        await agent.prompt(session_id=session_id, prompt=text("edit a.txt: hello -> goodbye"))
        ((_, call, ___),) = editor.asked
        assert _diff({"content": call.content}) == (str(desk.directory / "a.txt"), "hello", "goodbye")
        assert (desk.directory / "a.txt").read_text() == "goodbye\nworld\n" and editor.written == []


async def test_a_subagents_permission_reaches_the_editor(desk: Desk) -> None:
    task = {"description": "Looks", "prompt": "look", "subagent_type": "general"}
    desk.script(
        [{"tool": "task", "args": task}],
        [{"tool": "read", "args": {"filePath": "/etc/hosts"}}],
        [{"text": "The subagent is done."}],
        [{"text": "All done."}],
    )
    editor = Editor()
    async with desk.editor(editor=editor) as (agent, _, __):
        session_id = await new(agent, desk)
        answer = await agent.prompt(session_id=session_id, prompt=text("go"))
        ((where, call, ___),) = editor.asked
        assert where == session_id and "/etc/hosts" in call.title
        assert editor.calls()[call.tool_call_id]["status"] == "completed"
        assert answer.stop_reason == "end_turn" and editor.text() == "All done."


async def test_a_question_is_a_choice(desk: Desk) -> None:
    editor = Editor(permits=lambda call, options: options[1].option_id)
    async with desk.editor(editor=editor) as (agent, _, __):
        session_id = await new(agent, desk)
        await agent.prompt(session_id=session_id, prompt=text("ask Which colour: red, blue"))
        ((_, call, options),) = editor.asked
        assert call.title == "Which colour" and [each.name for each in options] == ["red", "blue", "Do not answer"]
        assert "blue" in next(iter(editor.calls().values()))["raw_output"]["output"]


@pytest.mark.parametrize(
    ("replies", "titles", "status"),
    [
        (["reject", "1"], ["red", "blue"], "completed"),
        (["reject", "reject"], ["red", "blue"], "failed"),
        (["0"], ["red"], "completed"),
    ],
)
async def test_a_question_is_asked_answer_by_answer_of_an_editor_that_does_not_name_them(
    desk: Desk, replies: list[str], titles: list[str], status: str
) -> None:
    """CodeCompanion has one key for all answers of one kind."""
    said = iter(replies)
    editor = Editor(permits=lambda call, options: next(said))
    async with desk.editor(editor=editor) as (agent, _, __):
        await agent.initialize(protocol_version=1, client_info=acp.schema.Implementation(name="CodeCompanion.nvim", version="1"))
        session_id = await new(agent, desk)
        await agent.prompt(session_id=session_id, prompt=text("ask Which colour: red, blue"))
        assert [len(options) for _, _, options in editor.asked] == [2] * len(titles)
        assert [call.title.removeprefix("Which colour ").split(":")[0] for _, call, _ in editor.asked] == titles
        (call,) = editor.calls().values()
        assert call["status"] == status
        assert status == "failed" or titles[-1] in call["raw_output"]["output"]


async def test_a_question_is_a_form_where_the_editor_has_them(desk: Desk) -> None:
    editor = Editor(form={"0": "red"})
    async with desk.editor(editor=editor, offers=FORMS) as (agent, _, __):
        session_id = await new(agent, desk)
        await agent.prompt(session_id=session_id, prompt=text("ask Which colour: red, blue"))
        (form,) = editor.forms
        assert [one.const for one in form.requested_schema.properties["0"].one_of] == ["red", "blue"]
        assert "red" in next(iter(editor.calls().values()))["raw_output"]["output"] and editor.asked == []


async def test_a_question_that_is_declined_ends_the_turn(desk: Desk) -> None:
    async with desk.editor(offers=FORMS) as (agent, editor, __):
        session_id = await new(agent, desk)
        answer = await agent.prompt(session_id=session_id, prompt=text("ask Which colour: red, blue"))
        assert answer.stop_reason == "end_turn" and next(iter(editor.calls().values()))["status"] == "failed"


async def test_a_cancelled_turn_ends_as_cancelled_and_its_command_is_gone(desk: Desk) -> None:
    async with desk.editor() as (agent, editor, process):
        session_id = await new(agent, desk)
        turn = asyncio.create_task(agent.prompt(session_id=session_id, prompt=text("run echo begun; sleep 600")))
        await editor.until(lambda: any("begun" in str(call.get("content")) for call in editor.calls().values()))
        below = children_of(process.pid)
        assert below
        await agent.cancel(session_id=session_id)
        assert (await turn).stop_reason == "cancelled"
        assert [pid for pid in below if is_alive(pid)] == []
        assert (await agent.prompt(session_id=session_id, prompt=text("long 1"))).stop_reason == "end_turn"


async def test_a_cancel_right_behind_the_prompt_holds(desk: Desk) -> None:
    async with desk.editor() as (agent, _, __):
        session_id = await new(agent, desk)
        turn = asyncio.create_task(agent.prompt(session_id=session_id, prompt=text("long 2000")))
        await asyncio.sleep(0)
        await agent.cancel(session_id=session_id)
        assert (await turn).stop_reason == "cancelled"


async def test_a_prompt_right_behind_a_cancel_is_answered(desk: Desk) -> None:
    async with desk.editor() as (agent, editor, _):
        session_id = await new(agent, desk)
        turn = asyncio.create_task(agent.prompt(session_id=session_id, prompt=text("run echo begun; sleep 600")))
        await editor.until(lambda: any("begun" in str(call.get("content")) for call in editor.calls().values()))
        await agent.cancel(session_id=session_id)
        answer = await agent.prompt(session_id=session_id, prompt=text("long 2"))
        assert (await turn).stop_reason == "cancelled"
        assert answer.stop_reason == "end_turn" and editor.text().rstrip().endswith("tok0    tok1")


async def test_a_cancel_withdraws_what_was_asked(desk: Desk) -> None:
    unanswered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def never() -> str:
        return await unanswered

    editor = Editor(permits=lambda call, options: never())
    async with desk.editor(editor=editor) as (agent, _, __):
        session_id = await new(agent, desk)
        turn = asyncio.create_task(agent.prompt(session_id=session_id, prompt=text("read /etc/hosts")))
        await editor.until(lambda: editor.asked)
        await agent.cancel(session_id=session_id)
        assert (await turn).stop_reason == "cancelled"
        unanswered.set_result("once")


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_tokens"), ("content-filter", "refusal"), ("stop", "end_turn")])
async def test_how_a_turn_stopped(desk: Desk, finish: str, reason: str) -> None:
    desk.script([{"text": "Well"}, {"finish": finish}])
    async with desk.editor() as (agent, _, __):
        session_id = await new(agent, desk)
        assert (await agent.prompt(session_id=session_id, prompt=text("go"))).stop_reason == reason


async def test_a_failed_turn_is_an_error_that_says_why(desk: Desk) -> None:
    async with desk.editor() as (agent, _, __):
        session_id = await new(agent, desk)
        with pytest.raises(acp.RequestError, match="You asked me to fail with 400"):
            await agent.prompt(session_id=session_id, prompt=text("fail 400"))


async def test_a_linked_file_is_read_in_the_editor_where_it_is_not_saved(desk: Desk) -> None:
    path, outside = desk.directory / "a.txt", desk.home / "secret.txt"
    outside.write_text("stored outside")
    editor = Editor(buffers={str(path): "first\nonly in the editor\n", str(outside): "not for the model"})
    async with desk.editor(editor=editor, offers=READS) as (agent, _, __):
        session_id = await new(agent, desk)
        for linked in (f"{path.as_uri()}#L2:2", outside.as_uri()):
            await agent.prompt(session_id=session_id, prompt=[*text("long 1"), acp.resource_link_block("linked", linked)])
        assert editor.read == [str(path)]
        stored = "".join(_stored_texts(desk, session_id))
        assert "00002| only in the editor" in stored and "00001| first" not in stored and "not for the model" not in stored


async def test_the_agent_reads_what_the_editor_shows_and_does_not_write_over_it(desk: Desk) -> None:
    path, new_file = desk.directory / "a.txt", desk.directory / "new.txt"
    task = {"description": "Looks", "prompt": "look", "subagent_type": "general"}
    desk.script(
        [{"tool": "read", "args": {"filePath": "a.txt"}}, {"tool": "read", "args": {"filePath": "new.txt"}}],
        [{"tool": "edit", "args": {"filePath": "a.txt", "oldString": "hello", "newString": "x"}}],
        [{"tool": "write", "args": {"filePath": "new.txt", "content": "x"}}],
        [{"tool": "task", "args": task}],
        [{"tool": "read", "args": {"filePath": "a.txt"}}],
        [{"text": "The subagent is done."}],
        [{"text": "Done."}],
        [{"tool": "read", "args": {"filePath": "a.txt"}}],
        [{"tool": "edit", "args": {"filePath": "a.txt", "oldString": "hello", "newString": "goodbye"}}],
    )
    editor = Editor(buffers={str(path): "hello\nunsaved", str(new_file): "new and unsaved\n"})
    async with desk.editor(editor=editor, offers=READS) as (agent, _, __):
        session_id = await new(agent, desk)
        await agent.prompt(session_id=session_id, prompt=text("go"))
        read, read_new, edited, written, _task = editor.calls().values()
        assert "00002| unsaved" in read["raw_output"]["output"] and "not saved" in read["raw_output"]["output"]
        assert "new and unsaved" in read_new["raw_output"]["output"]
        for refused in (edited, written):
            assert refused["status"] == "failed" and "changes that are not saved" in refused["raw_output"]["error"]
        assert editor.read.count(str(path)) == 3, "by the agent, before the edit and by its subagent"
        assert path.read_text() == "hello\nworld\n" and not new_file.exists() and editor.written == []
        path.write_text("hello\nunsaved\n")
        await agent.prompt(session_id=session_id, prompt=text("it is saved"))
        assert path.read_text() == "goodbye\nunsaved\n"


async def test_an_editor_that_does_not_answer_costs_no_more_than_a_wait(desk: Desk) -> None:
    never: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    class SilentEditor(Editor):
        async def read_text_file(self, session_id: str, path: str, **_: Any) -> Any:
            self.read.append(path)
            await never

    editor = SilentEditor()
    async with desk.editor(editor=editor, offers=READS) as (agent, _, __):
        session_id = await new(agent, desk)
        answer = await agent.prompt(session_id=session_id, prompt=text("read a.txt"))
        (call,) = editor.calls().values()
        assert answer.stop_reason == "end_turn" and "00001| hello" in call["raw_output"]["output"]
        assert editor.read == [str(desk.directory / "a.txt")]
        never.cancel()


async def test_an_editor_that_offers_no_files_is_asked_for_none(desk: Desk) -> None:
    editor = Editor(buffers={str(desk.directory / "a.txt"): "only in the editor"})
    async with desk.editor(editor=editor) as (agent, _, __):
        session_id = await new(agent, desk)
        link = acp.resource_link_block("a.txt", (desk.directory / "a.txt").as_uri())
        await agent.prompt(session_id=session_id, prompt=[*text("write b.txt: x"), link])
        assert editor.read == [] and editor.written == [] and (desk.directory / "b.txt").read_text() == "x"


async def test_a_binary_resource_goes_as_it_is(desk: Desk) -> None:
    blob = base64.b64encode(b"\x00\x01").decode()
    async with desk.editor() as (agent, _editor, _):
        session_id = await new(agent, desk)
        resource = acp.resource_block(acp.embedded_blob_resource("file:///x/clip.png", blob, mime_type="image/png"))
        answer = await agent.prompt(session_id=session_id, prompt=[*text("long 1"), resource])
        assert answer.stop_reason == "end_turn"


async def test_usage_and_the_title_are_told(desk: Desk) -> None:
    desk.variables["OPENCODE_CONFIG_CONTENT"] = "{}"
    async with desk.editor() as (agent, editor, _):
        session_id = await new(agent, desk)
        await agent.prompt(session_id=session_id, prompt=text("long 3"))
        await editor.until(lambda: any(update.title == "long 3" for update in editor.of("session_info_update")))
        listed = (await agent.list_sessions(cwd=str(desk.directory))).sessions
        assert [(each.session_id, each.title) for each in listed] == [(session_id, "long 3")]
        usage = editor.of("usage_update")
        assert usage and usage[-1].used > 0 and usage[-1].size > 0 and usage[-1].cost.currency == "USD"
