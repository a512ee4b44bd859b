"""What `opensession run` shows of the events of a session, how a prompt ended, and what a typed line answers."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from polling import until

from app.api.client import PromptOutcome
from app.cli import prompt_run
from app.cli.acp import asks
from app.cli.render import MAX_LINES, MAX_OUTPUT_LINES, JsonEvents, Output, Renderer, tool_lines

SESSION, PROMPT, ANSWER = "ses_1", "msg_1", "msg_2"


def event(kind: str, **properties: Any) -> dict[str, Any]:
    return {"type": kind, "properties": properties}


def message(role: str, message_id: str, session: str = SESSION, **fields: Any) -> dict[str, Any]:
    return event("message.updated", info={"id": message_id, "sessionID": session, "role": role, **fields})


def part(kind: str, message_id: str = ANSWER, part_id: str = "prt_1", session: str = SESSION, **fields: Any) -> dict[str, Any]:
    value = {"id": part_id, "messageID": message_id, "sessionID": session, "type": kind, **fields}
    return event("message.part.updated", part=value)


def text(text: str, *, ended: bool = False, **fields: Any) -> dict[str, Any]:
    return part("text", text=text, time={"start": 1, "end": 2} if ended else {"start": 1}, **fields)


def delta(gained: str, part_id: str = "prt_1", session: str = SESSION, message_id: str = ANSWER) -> dict[str, Any]:
    ref = {"sessionID": session, "messageID": message_id, "partID": part_id}
    return event("message.part.delta", **ref, partType="text", field="text", delta=gained)


def tool(name: str, state: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return part("tool", tool=name, callID="call", state=state, **fields)


def completed(given: dict[str, Any], title: str = "", **metadata: Any) -> dict[str, Any]:
    return {"status": "completed", "input": given, "output": "", "title": title, "metadata": metadata, "time": {}}


IDLE = event("session.idle", sessionID=SESSION)
PROMPTED = message("user", PROMPT)
ANSWERING = message("assistant", ANSWER)

DIFF = "Index: a.txt\n=====\n--- a.txt\n+++ a.txt\n@@ -1,2 +1,2 @@\n-hello\n+goodbye\n world\n"


def rendered(*events: dict[str, Any], live: bool = False) -> list[Output]:
    renderer = Renderer(SESSION, live=live)
    return [output for each in (PROMPTED, ANSWERING, *events) for output in renderer.show(each)]


def on_stdout(outputs: list[Output]) -> str:
    return "".join(each.text + each.end for each in outputs if each.target == "answer")


def notes(outputs: list[Output]) -> list[str]:
    return [each.text for each in outputs if each.target == "note"]


OTHERS = [text("Hi", ended=True, message_id=PROMPT), text("Other", ended=True, session="ses_2"), delta("x", session="ses_2")]
REMOVED = event("message.part.removed", sessionID=SESSION, messageID="msg_2", partID="prt_1")


def test_on_a_terminal_a_text_is_shown_as_it_streams() -> None:
    ended = text("Hello you", ended=True)
    outputs = rendered(text("Hel"), delta("lo "), delta("you"), ended, ended, live=True)
    assert [each.text for each in outputs] == ["Hel", "lo ", "you", ""]
    assert on_stdout(outputs) == "Hello you\n"


@pytest.mark.parametrize(
    ("live", "events", "shown"),
    [
        pytest.param(
            True, [text("He"), delta("y "), delta("you"), *[text("Hey you", ended=True)] * 2], "Hey you\n", id="streamed"
        ),
        pytest.param(False, [text("Hel"), delta("lo")], "", id="without a terminal not until it is finished"),
        pytest.param(False, [text("Hel"), delta("lo"), text("Hello", ended=True)], "Hello\n", id="and then whole"),
        pytest.param(True, [delta("secret"), text("masked", ended=True)], "secret\nmasked\n", id="replaced by a plugin"),
        pytest.param(True, [delta("Hello \n"), text("Hello", ended=True)], "Hello \n\n", id="an end that was trimmed"),
        pytest.param(True, [delta("Half"), REMOVED], "Half\n", id="taken back"),
        pytest.param(True, OTHERS, "", id="of the prompt and other sessions"),
        pytest.param(False, [text("Joined", ended=True, message_id="msg_0")], "Joined\n", id="that began before"),
    ],
)
def test_a_text_is_shown_once(live: bool, events: list[dict[str, Any]], shown: str) -> None:
    outputs = rendered(*events, live=live)
    assert on_stdout(outputs) == shown
    taken_back = ["(This was taken back: the request failed on the way.)"] if REMOVED in events else []
    assert notes(outputs) == taken_back
    assert bool(outputs) == bool(shown)


def test_a_tool_begins_a_line_of_its_own() -> None:
    outputs = rendered(delta("I write."), tool("edit", completed({}, "a.txt", diff=DIFF), part_id="prt_2"), live=True)
    assert on_stdout(outputs) == "I write.\n"
    assert notes(outputs) == ["✓ edit a.txt", "  @@ -1,2 +1,2 @@", "  -hello", "  +goodbye", "   world"]


def test_a_tool_call_is_shown_once_and_only_when_it_is_finished() -> None:
    running = tool("bash", {"status": "running", "input": {"command": "ls"}})
    done = tool("bash", completed({"command": "ls"}, output="a.txt\n"))
    assert notes(rendered(running, done, done)) == ["✓ bash ls", "  a.txt"]


def test_a_retry_and_an_error_are_said_unless_it_is_of_an_abort() -> None:
    retry = event("session.status", sessionID=SESSION, status={"type": "retry", "attempt": 2, "message": "Too many", "next": 1})
    failed = event("session.error", sessionID=SESSION, error={"name": "APIError", "data": {"message": "Bad key"}})
    aborted = event("session.error", sessionID=SESSION, error={"name": "MessageAbortedError", "data": {}})
    said = ["The request is sent again (attempt 2): Too many", "Error: Bad key"]
    assert [each.text for each in rendered(retry, failed, aborted)] == said


def lines(name: str, state: dict[str, Any]) -> list[str]:
    return [each.text for each in tool_lines(tool(name, state)["properties"]["part"])]


def test_a_call_is_shown_in_a_few_lines() -> None:
    failed = {"status": "error", "input": {"filePath": "b.txt"}, "error": "No such\nfile"}
    assert lines("read", failed) == ["✗ read b.txt: No such file"]
    assert lines("write", completed({"content": "one\ntwo\n"}, "b.txt", exists=False)) == ["✓ write b.txt", "  +one", "  +two"]
    diff = "--- a\n+++ a\n@@ -1 +1 @@\n--- old\n+++ new\n"
    assert lines("edit", completed({}, "a", diff=diff))[1:] == ["  @@ -1 +1 @@", "  --- old", "  +++ new"]
    many = "".join(f"{number}\n" for number in range(100))
    assert lines("bash", completed({"command": "seq"}, output=many))[-1] == f"  … {100 - MAX_OUTPUT_LINES} more lines"
    assert lines("write", completed({"content": many}, "b"))[-1] == f"  … {100 - MAX_LINES} more lines"


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


# How it ended, and what a line answers.


def outcome(*events: dict[str, Any]) -> PromptOutcome:
    found = PromptOutcome(SESSION, PROMPT)
    for each in events:
        found.note(each)
    return found


def finished(finish: str) -> dict[str, Any]:
    return message("assistant", ANSWER, finish=finish)


def failed(name: str) -> dict[str, Any]:
    return event("session.error", sessionID=SESSION, error={"name": name, "data": {}})


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([finished("stop")], 0),
        ([finished("tool-calls"), finished("stop")], 0),
        ([finished("tool-calls")], 1),
        ([failed("APIError")], 1),
        ([], 1),
        ([failed("MessageAbortedError")], 130),
    ],
)
def test_the_exit_code_is_how_the_turn_ended(events: list[dict[str, Any]], code: int) -> None:
    found = outcome(PROMPTED, *events, IDLE)
    assert found.is_known and found.exit_code == code


def test_what_came_before_the_prompt_or_is_of_other_sessions_is_not_about_it() -> None:
    assert not outcome(failed("APIError"), IDLE).is_known
    assert outcome(failed("APIError"), IDLE, PROMPTED, finished("stop"), IDLE).exit_code == 0
    assert not outcome(PROMPTED, event("session.idle", sessionID="ses_2")).is_known
    deleted = outcome(PROMPTED, event("session.deleted", info={"id": SESSION}))
    assert deleted.is_known and deleted.exit_code == 1, "a session that is deleted ends it"


@pytest.mark.parametrize(
    ("line", "reply"),
    [("y\n", "once"), ("Always\n", "always"), ("n\n", "reject"), ("", "reject"), ("\n", None), ("perhaps\n", None)],
)
def test_a_line_is_a_reply_or_none(line: str, reply: str | None) -> None:
    assert prompt_run.reply_of(line) == reply


OPTIONS = [{"label": "red", "description": "warm"}, {"label": "blue", "description": ""}]


@pytest.mark.parametrize(
    ("question", "line", "answers"),
    [
        ({}, "2\n", ["blue"]),
        ({}, "red\n", ["red"]),
        ({}, "green, or so\n", ["green, or so"]),
        ({}, "\n", None),
        ({"custom": False}, "green\n", None),
        ({"custom": False}, "3\n", None),
        ({"multiple": True}, "1, 2\n", ["red", "blue"]),
    ],
)
def test_a_line_chooses_options(question: dict[str, Any], line: str, answers: list[str] | None) -> None:
    assert prompt_run.answers_of({"options": OPTIONS, **question}, line) == answers


def test_a_request_says_what_always_would_allow_and_a_question_numbers_its_options() -> None:
    request = {"permission": "bash", "patterns": ["rm a", "ls"], "always": ["rm *"]}
    texts = [each.text for each in prompt_run.permission_texts(request)]
    assert texts == ["? May the agent do this: bash rm a, ls", "  y: once, a: always (always: rm *), n: no > "]
    texts = [each.text for each in prompt_run.question_texts({"question": "Which?", "options": OPTIONS, "multiple": True})]
    assert texts == ["? Which?", "  1. red  warm", "  2. blue", "  a number, several with commas, or an answer of your own > "]


def test_what_hides_or_reorders_others_is_shown_by_its_number_where_it_is_asked_about() -> None:
    """As on the page."""
    hidden = "\u00ad\u034f\u061c\u180e\u200b\u2028\u202e\u2066\u3164\ufeff\ufff9\U000e0041\x1b\r"
    request = {"permission": "bash", "patterns": [f"echo {hidden}❤️ é 文"], "always": [f"{hidden} *"]}
    numbers = "".join(f"⟨U+{ord(each):04X}⟩" for each in hidden)
    asked, choices = (each.text for each in prompt_run.permission_texts(request))
    assert asked == f"? May the agent do this: bash echo {numbers}❤️ é 文" and f"(always: {numbers} *)" in choices
    part = {"id": "prt_1", "tool": "bash", "state": {"status": "pending", "input": {"command": "echo \u202eb a"}}}
    assert asks.permission_call(request, part, "/work").title == "echo ⟨U+202E⟩b a"


class SlowApi:
    """Accepts a prompt when it is released, and aborts what it has accepted."""

    def __init__(self) -> None:
        self.events_of_it: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.prompted, self.released = asyncio.Event(), asyncio.Event()
        self.accepted = False

    async def events(self, _directory: str) -> AsyncIterator[dict[str, Any]]:
        yield event("server.connected")
        while True:
            yield await self.events_of_it.get()

    async def get(self, *_: Any, **__: Any) -> list[Any]:
        return []

    async def post(self, path: str, body: Any = None) -> None:
        if path.endswith("/prompt_async"):
            self.prompted.set()
            await self.released.wait()
            self.accepted = True
            self.events_of_it.put_nowait(message("user", body["messageID"]))
        elif self.accepted:
            self.events_of_it.put_nowait(IDLE)


async def test_an_interrupt_before_the_prompt_is_accepted_stops_its_turn() -> None:
    """Else it would be answered though nobody waits for it any more."""
    api, notes = SlowApi(), list[str]()
    view: Any = SimpleNamespace(show=lambda _: None, say=notes.append)
    run = prompt_run.PromptRun(api, view, {"id": SESSION, "directory": "/x"})
    running = asyncio.create_task(run.run({"parts": []}))
    await api.prompted.wait()
    os.kill(os.getpid(), signal.SIGINT)
    await until(lambda: notes)
    api.released.set()
    assert await asyncio.wait_for(running, 10) == prompt_run.STOPPED and api.accepted


async def test_a_line_is_read_when_it_comes() -> None:
    reads, writes = os.pipe()
    os.write(writes, b"y\n")
    assert await prompt_run.read_line(reads) == "y\n"
    os.close(writes)
    assert await prompt_run.read_line(reads) == ""
    os.close(reads)
