"""`opensession acp` driven by the SDK's own client: what a turn shows, what it asks, how it ends."""

import asyncio
import base64
import json
from typing import Any

import acp
import pytest
from acp_editor import FORMS, READS, Desk, are_gone, children_of
from polling import until
from shell_commands import Shell
from turns import bash, call, say, task

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
QUESTION = "ask Which colour: red, blue"


def edit(path: str, old: str, new: str) -> dict[str, Any]:
    return call("edit", filePath=path, oldString=old, newString=new)


def diff(content: list[Any]) -> tuple[str, str | None, str]:
    (shown,) = [each for each in content if each.type == "diff"]
    return shown.path, shown.old_text, shown.new_text


def stored_texts(desk: Desk, session_id: str) -> list[str]:
    shown = Shell(desk.directory, desk.home, desk.home / "data").done("session", "show", session_id, "--format", "json")
    messages = json.loads(shown.stdout)["messages"]
    return [part["text"] for message in messages for part in message["parts"] if part["type"] == "text"]


async def test_a_turn_is_shown_whole_and_in_order_before_its_answer(desk: Desk) -> None:
    desk.script(
        [{"reasoning": "Let me look."}, say("Two files at once."), call("read", filePath="a.txt"), bash("echo hi")],
        [call("write", filePath="new.txt", content="fresh\n")],
        [edit("a.txt", "hello", "goodbye")],
        [call("write", filePath="a.txt", content="all new\n")],
        [say(chunks=1)],
    )
    async with desk.session() as editor:
        answer = await editor.agent.prompt(session_id=editor.session, prompt=[acp.text_block("go")])
        assert answer.stop_reason == "end_turn" and answer.usage.output_tokens == 100
        assert editor.text() == "Two files at once.Done." and editor.text("agent_thought_chunk") == "Let me look."
        calls = list(editor.calls().values())
        assert [call["kind"] for call in calls] == ["read", "execute", "edit", "edit", "edit"]
        assert {call["status"] for call in calls} == {"completed"}
        first, second, created, edited, written = calls
        path = str(desk.directory / "a.txt")
        assert first["locations"][0].path == path and first["raw_input"] == {"filePath": "a.txt"}
        assert second["title"] == "echo hi" and second["content"][0].content.text == "```console\nhi\n```"
        assert diff(created["content"]) == (str(desk.directory / "new.txt"), None, "fresh\n")
        assert diff(edited["content"]) == (path, "hello\nworld\n", "goodbye\nworld\n")
        assert diff(written["content"]) == (path, "goodbye\nworld\n", "all new\n")
        assert editor.of("user_message_chunk") == []


async def test_initialize_says_what_there_is_and_a_directory_that_may_not_be_used_is_refused(desk: Desk) -> None:
    async with desk.editor() as editor:
        said = await editor.agent.initialize(protocol_version=1)
        assert said.protocol_version == 1 and said.agent_info.name == "opensession" and said.auth_methods == []
        offered = said.agent_capabilities
        assert offered.load_session and offered.prompt_capabilities.image and offered.prompt_capabilities.embedded_context
        assert offered.mcp_capabilities.http and not offered.prompt_capabilities.audio
        sessions = offered.session_capabilities
        assert None not in (sessions.list, sessions.fork, sessions.resume, sessions.close, sessions.delete)
        for cwd in ("relative", "/no/such/directory", "/etc"):
            with pytest.raises(acp.RequestError) as refused:
                await editor.agent.new_session(cwd=cwd, mcp_servers=[])
            assert refused.value.code == -32602 and cwd in f"{refused.value} {refused.value.data}"
        assert (await editor.agent.list_sessions()).sessions == []


async def test_commands_are_offered_and_run_and_other_words_behind_a_slash_go_to_the_model(desk: Desk) -> None:
    commands = desk.directory / ".opencode" / "command"
    commands.mkdir(parents=True)
    (commands / "count.md").write_text("---\ndescription: Counts\n---\nlong $ARGUMENTS")
    async with desk.session() as editor:
        (offered,) = await editor.until(lambda: editor.of("available_commands_update"))
        names = {command.name: command for command in offered.available_commands}
        assert names["count"].description == "Counts" and names["count"].input.root.hint and "compact" in names
        assert await editor.say("/count 3") == "end_turn" and editor.text().split() == ["tok0", "tok1", "tok2"]
        for first, *more in (("/count", " 2"), ("/count\n2",), (" /count ", "2")):
            editor.updates.clear()
            await editor.say(first, *map(acp.text_block, more))
            assert editor.text().split() == ["tok0", "tok1"]
        assert await editor.say("/compact") == "end_turn"
        await editor.say("/etc/hosts is what?")
        assert "“/etc/hosts is what?” is not a command I know." in editor.text()


async def test_images_and_resources_reach_the_model(desk: Desk) -> None:
    (desk.directory / "linked.md").write_text("what is linked\nsecond line\n")
    async with desk.session() as editor:
        link = acp.resource_link_block("linked.md", f"{(desk.directory / 'linked.md').as_uri()}#L1:1")
        embedded = acp.resource_block(acp.embedded_text_resource("file:///x/notes.md", "what is embedded"))
        await editor.say("long 1", acp.image_block(PIXEL, "image/png"), link, embedded)
        blob = acp.embedded_blob_resource("file:///x/clip.png", base64.b64encode(b"\x00\x01").decode(), mime_type="image/png")
        assert await editor.say("long 1", acp.resource_block(blob)) == "end_turn", "a binary resource goes as it is"
        assert await editor.say("long 1", acp.resource_link_block("odd", "http://[odd")) == "end_turn"
        async with desk.editor() as reader:
            await reader.load(desk.directory, editor.session)
            image, _ = (u.content for u in reader.of("user_message_chunk") if u.content.type == "image")
            assert image.data == PIXEL
        stored = stored_texts(desk, editor.session)
        assert any("what is linked" in each and "second line" not in each for each in stored)
        assert any("what is embedded" in each for each in stored)


async def test_todos_usage_and_the_title_are_told(desk: Desk) -> None:
    desk.variables["OPENCODE_CONFIG_CONTENT"] = "{}"
    async with desk.session() as editor:
        await editor.say("long 3")
        await editor.until(lambda: any(update.title == "long 3" for update in editor.of("session_info_update")))
        listed = (await editor.agent.list_sessions(cwd=str(desk.directory))).sessions
        assert [(each.session_id, each.title) for each in listed] == [(editor.session, "long 3")]
        usage = editor.of("usage_update")[-1]
        assert usage.used > 0 and usage.size > 0 and usage.cost.currency == "USD"
        await editor.say("todo first, second")
        entries = editor.of("plan")[-1].entries
        assert [(entry.content, entry.status) for entry in entries] == [("first", "pending"), ("second", "pending")]


@pytest.mark.parametrize(("chosen", "status"), [("once", "completed"), ("always", "completed"), ("reject", "failed")])
async def test_a_permission_is_asked_with_its_reason_and_the_answer_holds(desk: Desk, chosen: str, status: str) -> None:
    async with desk.session(replies=[chosen]) as editor:
        assert await editor.say("read /etc/hosts") == "end_turn"
        ((where, call, options),) = editor.asked
        assert where == editor.session and [each.kind for each in options] == ["allow_once", "allow_always", "reject_once"]
        assert "/etc/*" in options[1].name and "outside the project" in call.content[-1].content.text
        (shown,) = editor.calls().values()
        assert call.tool_call_id == shown["tool_call_id"] and shown["status"] == status
        await editor.say("read /etc/hosts")
        assert len(editor.asked) == (1 if chosen == "always" else 2)


async def test_an_edit_that_is_asked_about_shows_its_diff(desk: Desk) -> None:
    (desk.directory / "opencode.json").write_text('{"permission": {"edit": "ask"}}')
    async with desk.session() as editor:
        await editor.say("edit a.txt: hello -> goodbye")
        ((_, call, _options),) = editor.asked
        assert diff(call.content) == (str(desk.directory / "a.txt"), "hello", "goodbye")
        assert (desk.directory / "a.txt").read_text() == "goodbye\nworld\n" and editor.written == []


async def test_a_subagents_permission_reaches_the_editor(desk: Desk) -> None:
    desk.script([task()], [call("read", filePath="/etc/hosts")], [say("The subagent is done.")], [say("All done.")])
    async with desk.session() as editor:
        assert await editor.say("go") == "end_turn" and editor.text() == "All done."
        ((where, asked, _),) = editor.asked
        assert where == editor.session and "/etc/hosts" in asked.title
        assert editor.calls()[asked.tool_call_id]["status"] == "completed"


async def test_a_question_is_a_choice(desk: Desk) -> None:
    async with desk.session(replies=["1"]) as editor:
        await editor.say(QUESTION)
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
    async with desk.editor(replies=[*replies]) as editor:
        companion = acp.schema.Implementation(name="CodeCompanion.nvim", version="1")
        await editor.agent.initialize(protocol_version=1, client_info=companion)
        await editor.new(desk.directory)
        await editor.say(QUESTION)
        assert [len(options) for _, _, options in editor.asked] == [2] * len(titles)
        assert [call.title.removeprefix("Which colour ").split(":")[0] for _, call, _ in editor.asked] == titles
        (call,) = editor.calls().values()
        assert call["status"] == status
        assert status == "failed" or titles[-1] in call["raw_output"]["output"]


async def test_a_question_is_a_form_where_the_editor_has_them_and_declined_ends_the_turn(desk: Desk) -> None:
    async with desk.session(form={"0": "red"}, offers=FORMS) as editor:
        await editor.say(QUESTION)
        (form,) = editor.forms
        assert [one.const for one in form.requested_schema.properties["0"].one_of] == ["red", "blue"]
        editor.form = None
        assert await editor.say(QUESTION) == "end_turn"
        answered, declined = editor.calls().values()
        assert "red" in answered["raw_output"]["output"] and declined["status"] == "failed" and editor.asked == []


async def test_a_cancelled_turn_ends_as_cancelled_its_command_is_gone_and_the_next_prompt_answered(desk: Desk) -> None:
    async with desk.session() as editor:
        for number, is_over_first in enumerate((True, False)):
            turn = editor.begin(f"run echo begun {number}; sleep 600")
            shown = f"begun {number}"
            await editor.until(lambda shown=shown: any(shown in str(call.get("content")) for call in editor.calls().values()))
            below = children_of(editor.process.pid)
            assert below
            await editor.agent.cancel(session_id=editor.session)
            if is_over_first:
                assert await turn == "cancelled" and are_gone(below)
            assert await editor.say("long 2") == "end_turn" and editor.text().rstrip().endswith("tok0    tok1")
            assert await turn == "cancelled"


async def test_a_cancel_right_behind_the_prompt_holds(desk: Desk) -> None:
    async with desk.session() as editor:
        turn = editor.begin("long 2000")
        await asyncio.sleep(0)
        await editor.agent.cancel(session_id=editor.session)
        assert await turn == "cancelled"


async def test_a_cancelled_request_is_a_cancelled_turn(desk: Desk) -> None:
    async with desk.raw_editor() as editor:
        session_id = await editor.prompt("run touch begun; sleep 600")
        await until((desk.directory / "begun").exists)
        for params in ({"requestId": 99}, {"requestId": [3]}, {}, [3], {"requestId": 3}):
            await editor.send(json.dumps({"jsonrpc": "2.0", "method": "$/cancel_request", "params": params}).encode())
        assert (await editor.answer_to(3))["result"]["stopReason"] == "cancelled"
        await editor.send(b'{"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 3}}')
        await editor.call("session/prompt", 4, sessionId=session_id, prompt=[{"type": "text", "text": "long 1"}])
        assert (await editor.answer_to(4))["result"]["stopReason"] == "end_turn"
    assert "Traceback" not in desk.log()


async def test_a_cancel_withdraws_what_was_asked(desk: Desk) -> None:
    async with desk.session(withholds=True) as editor:
        turn = editor.begin("read /etc/hosts")
        await editor.until(lambda: editor.asked)
        await editor.agent.cancel(session_id=editor.session)
        assert await turn == "cancelled"


async def test_how_a_turn_stopped_and_a_failed_one_is_an_error_that_says_why(desk: Desk) -> None:
    reasons = {"length": "max_tokens", "content-filter": "refusal", "stop": "end_turn"}
    desk.script(*([say("Well"), {"finish": finish}] for finish in reasons))
    async with desk.editor() as editor:
        for reason in reasons.values():
            await editor.new(desk.directory)
            assert await editor.say("go") == reason
        with pytest.raises(acp.RequestError, match="You asked me to fail with 400"):
            await editor.say("fail 400")


async def test_a_linked_file_is_read_in_the_editor_where_it_is_not_saved(desk: Desk) -> None:
    path, outside = desk.directory / "a.txt", desk.home / "secret.txt"
    outside.write_text("stored outside")
    buffers = {str(path): "first\nonly in the editor\n", str(outside): "not for the model"}
    async with desk.session(buffers=buffers, offers=READS) as editor:
        for linked in (f"{path.as_uri()}#L2:2", outside.as_uri()):
            await editor.say("long 1", acp.resource_link_block("linked", linked))
        assert editor.read == [str(path)]
        stored = "".join(stored_texts(desk, editor.session))
        assert "00002| only in the editor" in stored and "00001| first" not in stored and "not for the model" not in stored


async def test_the_agent_reads_what_the_editor_shows_and_does_not_write_over_it(desk: Desk) -> None:
    path, new_file = desk.directory / "a.txt", desk.directory / "new.txt"
    desk.script(
        [call("read", filePath="a.txt"), call("read", filePath="new.txt")],
        [edit("a.txt", "hello", "x")],
        [call("write", filePath="new.txt", content="x")],
        [task()],
        [call("read", filePath="a.txt")],
        [say("The subagent is done.")],
        [say()],
        [call("read", filePath="a.txt")],
        [edit("a.txt", "hello", "goodbye")],
    )
    async with desk.session(buffers={str(path): "hello\nunsaved", str(new_file): "new, unsaved\n"}, offers=READS) as editor:
        await editor.say("go")
        seen, seen_new, edited, written, _task = editor.calls().values()
        assert "00002| unsaved" in seen["raw_output"]["output"] and "not saved" in seen["raw_output"]["output"]
        assert "new, unsaved" in seen_new["raw_output"]["output"]
        for refused in (edited, written):
            assert refused["status"] == "failed" and "changes that are not saved" in refused["raw_output"]["error"]
        assert editor.read.count(str(path)) == 3, "by the agent, before the edit and by its subagent"
        assert path.read_text() == "hello\nworld\n" and not new_file.exists() and editor.written == []
        path.write_text("hello\nunsaved\n")
        await editor.say("it is saved")
        assert path.read_text() == "goodbye\nunsaved\n"


async def test_an_editor_that_does_not_answer_costs_no_more_than_a_wait(desk: Desk) -> None:
    async with desk.session(withholds=True, offers=READS) as editor:
        assert await editor.say("read a.txt") == "end_turn" and editor.read == [str(desk.directory / "a.txt")]
        (call,) = editor.calls().values()
        assert "00001| hello" in call["raw_output"]["output"]


async def test_an_editor_that_offers_no_files_is_asked_for_none(desk: Desk) -> None:
    path = desk.directory / "a.txt"
    async with desk.session(buffers={str(path): "only in the editor"}) as editor:
        await editor.say("write b.txt: x", acp.resource_link_block("a.txt", path.as_uri()))
        assert editor.read == [] and editor.written == [] and (desk.directory / "b.txt").read_text() == "x"
