"""What `opensession run` shows of the events of a session, and as JSON."""

import json
from typing import Any

from terminal_events import ANSWERING, PROMPT, PROMPTED, SESSION, completed, delta, event, part, text, tool

from app.cli.render import MOST_LINES, MOST_OUTPUT_LINES, JsonEvents, Output, Renderer, tool_lines

DIFF = "Index: a.txt\n=====\n--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n-hello\n+goodbye\n world\n"


def rendered(*events: dict[str, Any], live: bool = False) -> list[Output]:
    renderer = Renderer(SESSION, live=live)
    return [output for each in (PROMPTED, ANSWERING, *events) for output in renderer.show(each)]


def on_stdout(outputs: list[Output]) -> str:
    return "".join(each.text + each.end for each in outputs if each.target == "answer")


def notes(outputs: list[Output]) -> list[str]:
    return [each.text for each in outputs if each.target == "note"]


def test_on_a_terminal_a_text_is_shown_as_it_streams_and_once() -> None:
    outputs = rendered(
        text("Hel"), delta("lo "), delta("you"), text("Hello you", ended=True), text("Hello you", ended=True), live=True
    )
    assert [each.text for each in outputs] == ["Hel", "lo ", "you", ""]
    assert on_stdout(outputs) == "Hello you\n"


def test_without_one_it_is_shown_when_it_is_finished() -> None:
    assert rendered(text("Hel"), delta("lo")) == []
    assert on_stdout(rendered(text("Hel"), delta("lo"), text("Hello", ended=True))) == "Hello\n"


def test_a_text_that_a_plugin_has_replaced_is_shown_too() -> None:
    assert on_stdout(rendered(delta("secret"), text("masked", ended=True), live=True)) == "secret\nmasked\n"


def test_an_end_that_was_trimmed_is_not_shown_again() -> None:
    assert on_stdout(rendered(delta("Hello \n"), text("Hello", ended=True), live=True)) == "Hello \n\n"


def test_what_a_failed_request_has_streamed_is_said_to_be_taken_back() -> None:
    removed = event("message.part.removed", sessionID=SESSION, messageID="msg_2", partID="prt_1")
    outputs = rendered(delta("Half"), removed, live=True)
    assert on_stdout(outputs) == "Half\n"
    assert notes(outputs) == ["(This was taken back: the request failed on the way.)"]


def test_the_prompt_and_other_sessions_are_not_shown() -> None:
    others = [text("Hi", ended=True, message_id=PROMPT), text("Other", ended=True, session="ses_2"), delta("x", session="ses_2")]
    assert rendered(*others, live=True) == []


def test_a_message_that_began_before_is_shown() -> None:
    assert on_stdout(rendered(text("Joined", ended=True, message_id="msg_0"))) == "Joined\n"


def test_a_tool_begins_a_line_of_its_own() -> None:
    outputs = rendered(delta("I write."), tool("edit", completed({}, "a.txt", diff=DIFF), part_id="prt_2"), live=True)
    assert on_stdout(outputs) == "I write.\n"
    assert notes(outputs) == ["✓ edit a.txt", "  @@ -1,2 +1,2 @@", "  -hello", "  +goodbye", "   world"]


def test_a_tool_call_is_shown_once_and_only_when_it_is_finished() -> None:
    running = tool("bash", {"status": "running", "input": {"command": "ls"}})
    done = tool("bash", completed({"command": "ls"}, output="a.txt\n"))
    assert notes(rendered(running, done, done)) == ["✓ bash ls", "  a.txt"]


def test_a_retry_and_an_error_are_said() -> None:
    retry = event("session.status", sessionID=SESSION, status={"type": "retry", "attempt": 2, "message": "Too many", "next": 1})
    failed = event("session.error", sessionID=SESSION, error={"name": "APIError", "data": {"message": "Bad key"}})
    assert notes(rendered(retry, failed)) == ["The request is sent again (attempt 2): Too many", "Error: Bad key"]


def test_the_error_of_an_abort_is_not() -> None:
    assert rendered(event("session.error", sessionID=SESSION, error={"name": "MessageAbortedError", "data": {}})) == []


def lines(name: str, state: dict[str, Any]) -> list[str]:
    return [each.text for each in tool_lines(tool(name, state)["properties"]["part"])]


def test_a_failed_call_says_why_on_one_line() -> None:
    state = {"status": "error", "input": {"filePath": "b.txt"}, "error": "No such\nfile"}
    assert lines("read", state) == ["✗ read b.txt: No such file"]


def test_a_new_file_is_shown_as_added() -> None:
    assert lines("write", completed({"content": "one\ntwo\n"}, "b.txt", exists=False)) == ["✓ write b.txt", "  +one", "  +two"]


def test_lines_of_a_file_that_look_like_headers_are_shown() -> None:
    diff = "--- a\n+++ a\n@@ -1 +1 @@\n--- old\n+++ new\n"
    assert lines("edit", completed({}, "a", diff=diff))[1:] == ["  @@ -1 +1 @@", "  --- old", "  +++ new"]


def test_long_outputs_and_diffs_are_cut() -> None:
    many = "".join(f"{number}\n" for number in range(100))
    assert lines("bash", completed({"command": "seq"}, output=many))[-1] == f"  … {100 - MOST_OUTPUT_LINES} more lines"
    assert lines("write", completed({"content": many}, "b"))[-1] == f"  … {100 - MOST_LINES} more lines"


def json_lines(*events: dict[str, Any]) -> list[dict[str, Any]]:
    found = JsonEvents(SESSION)
    return [json.loads(line) for each in (PROMPTED, ANSWERING, *events) for line in found.lines(each, 7)]


def test_json_has_the_types_of_opencode_each_part_once() -> None:
    done = tool("bash", completed({"command": "ls"}), part_id="prt_2")
    events = json_lines(part("step-start", part_id="prt_0"), text("H"), text("Hi", ended=True), done, done, part("step-finish"))
    assert [each["type"] for each in events] == ["step_start", "text", "tool_use"]
    assert {(each["timestamp"], each["sessionID"]) for each in events} == {(7, SESSION)}
    assert events[1]["part"]["text"] == "Hi"


def test_json_has_errors_and_nothing_of_prompts_and_subagents() -> None:
    failed = event("session.error", sessionID=SESSION, error={"name": "APIError", "data": {}})
    others = [text("Hi", ended=True, message_id=PROMPT), text("x", ended=True, session="ses_2")]
    (line,) = json_lines(*others, failed)
    assert (line["type"], line["error"]["name"]) == ("error", "APIError")
