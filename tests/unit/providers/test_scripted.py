"""The scripted provider: turns that were written down, and answers by rule."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from app.providers.base import (
    ApiFailure,
    AssistantTurn,
    Finish,
    InvalidToolCall,
    ModelMessage,
    ModelRequest,
    ReasoningDelta,
    ReasoningEnd,
    ReasoningStart,
    StreamEvent,
    StreamStart,
    TextBlock,
    TextDelta,
    TextEnd,
    TextStart,
    ToolCall,
    ToolCallBlock,
    ToolInputStart,
    ToolResultBlock,
    ToolSpec,
    ToolTurn,
    Usage,
    UserTurn,
)
from app.providers.catalogue import scripted_info
from app.providers.scripted import (
    TITLE,
    Call,
    Cut,
    Fail,
    Say,
    ScriptedProvider,
    ScriptError,
    load_script,
    parse_step,
)
from app.providers.scripted_rules import answer, rules_provider, title

TOOLS = ("read", "write", "edit", "bash", "glob", "todowrite", "question")


def request(*messages: ModelMessage, model: str = "rules", tools: Sequence[str] = TOOLS) -> ModelRequest:
    specs = tuple(ToolSpec(tool, "", {"type": "object"}) for tool in tools)
    return ModelRequest(scripted_info().models[model], ("system",), messages, "ses_1", specs)


def user(*texts: str) -> UserTurn:
    return UserTurn(tuple(TextBlock(text) for text in texts))


def called(tool: str, text: str = "one\ntwo", is_error: bool = False) -> tuple[AssistantTurn, ToolTurn]:
    call = AssistantTurn((TextBlock("…"), ToolCallBlock("c", tool, {})))
    return call, ToolTurn((ToolResultBlock("c", tool, text, is_error),))


async def events(provider: ScriptedProvider, asked: ModelRequest | None = None) -> list[StreamEvent]:
    return [event async for event in provider.stream(asked or request(user("hi")))]


def streamed_text(stream: list[StreamEvent]) -> str:
    return "".join(event.text for event in stream if isinstance(event, TextDelta))


# turns


DONE = Finish("stop", Usage(input=100, output=20))
CALLED = Finish("tool-calls", DONE.usage)
STREAMS: dict[str, tuple[list[Any], list[StreamEvent]]] = {
    "pieces": (
        [{"text": "abcdefgh", "chunks": 2}],
        [TextStart("0"), TextDelta("0", "abcd"), TextDelta("0", "efgh"), TextEnd("0"), DONE],
    ),
    "reasoning": (
        [{"reasoning": "hm", "chunks": 1}, {"text": "a", "chunks": 1}],
        [
            *(ReasoningStart("0"), ReasoningDelta("0", "hm"), ReasoningEnd("0")),
            *(TextStart("1"), TextDelta("1", "a"), TextEnd("1"), DONE),
        ],
    ),
    "a call": (
        [{"tool": "read", "args": {"filePath": "a"}, "id": "c1"}],
        [ToolInputStart("c1", "read"), ToolCall("c1", "read", {"filePath": "a"}), CALLED],
    ),
    "raw arguments": (
        [{"tool": "read", "raw": '{"a": 1}', "id": "c1"}],
        [ToolInputStart("c1", "read"), ToolCall("c1", "read", {"a": 1}), CALLED],
    ),
    "typed steps": (
        [Say("a", chunks=1), Call("read", {}, "c1")],
        [
            *(TextStart("0"), TextDelta("0", "a"), TextEnd("0")),
            *(ToolInputStart("c1", "read"), ToolCall("c1", "read", {})),
            CALLED,
        ],
    ),
    "a usage and a finish": (
        [{"usage": {"input": 7, "cache_read": 3}}, {"finish": "length"}],
        [Finish("length", Usage(input=7, output=20, cache_read=3))],
    ),
    "a cut, without a finish": (
        [{"text": "half", "chunks": 1}, {"cut": True}, {"text": "never"}],
        [TextStart("0"), TextDelta("0", "half"), TextEnd("0")],
    ),
}


@pytest.mark.parametrize(("turn", "stream"), STREAMS.values(), ids=STREAMS)
async def test_a_turn_is_streamed(turn, stream):
    assert await events(ScriptedProvider([turn])) == [StreamStart(), *stream]


async def test_calls_without_an_id_get_different_ones():
    stream = await events(ScriptedProvider([[{"tool": "a"}, {"tool": "b"}]]))
    assert len({event.call_id for event in stream if isinstance(event, ToolCall)}) == 2


@pytest.mark.parametrize("raw", ['{"filePath": ', "[1]", "3"])
async def test_arguments_that_are_no_object_are_an_invalid_call(raw):
    invalid = (await events(ScriptedProvider([[{"tool": "read", "raw": raw, "id": "c1"}]])))[2]
    assert isinstance(invalid, InvalidToolCall) and invalid.error
    assert (invalid.call_id, invalid.raw) == ("c1", raw)


async def test_turns_are_played_in_order_then_it_says_ok():
    provider = ScriptedProvider([[{"text": "one"}], [{"text": "two"}]])
    provider.add([{"text": "three"}])
    assert [streamed_text(await events(provider)) for _ in range(4)] == ["one", "two", "three", "ok"]


async def test_a_title_takes_no_turn_and_every_request_is_recorded():
    provider = ScriptedProvider([[{"text": "one"}]])
    asked = request(user("hi"), model="title")
    assert streamed_text(await events(provider, asked)) == TITLE
    assert provider.requests == [asked]
    assert streamed_text(await events(provider)) == "one"


@pytest.mark.parametrize(
    ("status", "retryable"), [(408, True), (409, True), (429, True), (500, True), (503, True), (400, False), (401, False)]
)
async def test_a_status_fails_the_request_before_anything_is_streamed(status, retryable):
    step = {"status": status, "headers": {"retry-after-ms": "5"}, "body": {"error": "x"}, "message": "no"}
    seen = []
    with pytest.raises(ApiFailure) as caught:
        async for event in ScriptedProvider([[{"text": "never"}, step]]).stream(request()):
            seen.append(event)
    failure = caught.value
    assert seen == []
    assert (failure.status, failure.retryable, failure.message) == (status, retryable, "no")
    assert (failure.headers, failure.body) == ({"retry-after-ms": "5"}, '{"error":"x"}')


async def test_a_turn_waits_for_its_event():
    gate = asyncio.Event()
    stream = ScriptedProvider([[{"text": "a", "chunks": 1}, {"wait": gate}, {"text": "b", "chunks": 1}]]).stream(request())
    before = [await anext(stream) for _ in range(4)]
    rest = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert before[-1] == TextEnd("0")
    assert not rest.done()
    gate.set()
    assert await rest == TextStart("2")
    await stream.aclose()


async def test_a_delay_is_kept():
    before = asyncio.get_running_loop().time()
    await events(ScriptedProvider([[{"text": "abcd", "chunks": 4, "delay": 0.005}, {"sleep": 0.01}]]))
    assert asyncio.get_running_loop().time() - before >= 0.03


# scripts


def test_a_script_file(tmp_path):
    (tmp_path / "s.json").write_text(json.dumps({"turns": [[{"text": "a"}], [{"status": 429}, {"cut": True}]]}))
    assert load_script(tmp_path / "s.json") == [(Say("a"),), (Fail(429), Cut())]


@pytest.mark.parametrize("content", ["nope", "[]", '{"turns": 1}', '{"turns": [{"text": "a"}]}', '{"turns": ["a"]}', None])
def test_a_script_that_is_not_one(tmp_path, content):
    if content is not None:
        (tmp_path / "s.json").write_text(content)
    with pytest.raises(ScriptError):
        load_script(tmp_path / "s.json")


@pytest.mark.parametrize(
    "step",
    [{}, {"txt": "a"}, {"text": "a", "speed": 1}, {"finish": "done"}, {"usage": {"tokens": 1}}, {"tool": "a", "arguments": {}}],
)
def test_a_step_that_is_not_one_says_so(step):
    with pytest.raises(ScriptError, match="step"):
        parse_step(step)


# rules


def steps(*messages: ModelMessage, tools: Sequence[str] = TOOLS) -> list[Any]:
    return list(answer(request(*messages, tools=tools)))


def only_call(*messages: ModelMessage, tools: Sequence[str] = TOOLS) -> Call:
    [call] = [step for step in steps(*messages, tools=tools) if isinstance(step, Call)]
    return call


@pytest.mark.parametrize(
    ("text", "tool", "args"),
    [
        ("read a.txt", "read", {"filePath": "a.txt"}),
        ("Read src/a.txt", "read", {"filePath": "src/a.txt"}),
        ("write a.txt: hello\nworld", "write", {"filePath": "a.txt", "content": "hello\nworld"}),
        ("run git status", "bash", {"command": "git status", "description": "Runs git status"}),
        ("list files", "glob", {"pattern": "*"}),
    ],
)
def test_commands_become_calls(text, tool, args):
    said_first, call, *_ = steps(user(text))
    assert isinstance(said_first, Say)
    assert call == Call(tool, args)


def test_a_question_and_a_todo_list():
    [asked] = only_call(user("ask Which colour?: red, blue")).args["questions"]
    assert (asked["question"], [option["label"] for option in asked["options"]]) == ("Which colour?", ["red", "blue"])
    todos = only_call(user("todo milk, eggs")).args["todos"]
    assert [(todo["content"], todo["status"]) for todo in todos] == [("milk", "pending"), ("eggs", "pending")]


def test_an_edit_reads_first_then_edits_then_closes():
    asked = user("edit a.txt: old -> new")
    assert only_call(asked) == Call("read", {"filePath": "a.txt"})
    read = called("read")
    assert only_call(asked, *read) == Call("edit", {"filePath": "a.txt", "oldString": "old", "newString": "new"})
    closing = steps(asked, *read, *called("edit"))
    assert not [step for step in closing if isinstance(step, Call)]
    assert "`edit` succeeded" in closing[0].text


def test_an_edit_whose_read_failed_stops():
    closing = steps(user("edit a.txt: old -> new"), *called("read", "File not found", is_error=True))
    assert closing[0].text == "`read` failed: File not found"


def test_a_file_that_stands_there_is_read_before_it_is_written_over():
    asked, refused = user("write a.txt: x"), called("write", "You must read file a.txt before overwriting it", is_error=True)
    assert only_call(asked, *refused) == Call("read", {"filePath": "a.txt"})
    assert only_call(asked, *refused, *called("read")) == Call("write", {"filePath": "a.txt", "content": "x"})
    assert "`write` succeeded" in steps(asked, *refused, *called("read"), *called("write"))[0].text
    assert "`write` failed" in steps(asked, *refused, *called("read"), *refused)[0].text
    assert "`write` failed" in steps(asked, *called("write", "No", is_error=True))[0].text


@pytest.mark.parametrize(
    ("asked", "tools", "said"),
    [
        ([user("read a"), *called("read")], TOOLS, "Done: `read` succeeded (2 lines of output)."),
        ([user("run ls")], ["read"], "That needs the tool `bash`, which this agent does not have."),
    ],
)
def test_what_came_of_a_command_is_said(asked, tools, said):
    assert steps(*asked, tools=tools)[0].text == said


def test_a_patching_model_writes_with_a_patch():
    call = only_call(user("write a.txt: x"), tools=["apply_patch"])
    assert call.args["patchText"] == "*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch"


def test_think_reasons_and_long_streams_so_many_tokens():
    assert steps(user("think"))[0].kind == "reasoning"
    long = steps(user("long 50"))[0]
    assert (long.chunks, len(long.text.split())) == (50, 50)


async def test_fail_fails():
    with pytest.raises(ApiFailure) as caught:
        await events(rules_provider(), request(user("fail 429")))
    assert (caught.value.status, caught.value.retryable) == (429, True)


@pytest.mark.parametrize("text", ["help", "what is the meaning of it?", ""])
def test_anything_else_explains_what_it_is_and_understands(text):
    explained = steps(user(text))[0].text
    assert "no language model" in explained
    assert "`read PATH`" in explained


@pytest.mark.parametrize(
    ("asked", "tool", "content"),
    [
        ([user("<reminder>plan</reminder>", "read a.txt")], "read", None),
        ([user("read a"), AssistantTurn((TextBlock("no"),)), user("run ls")], "bash", None),
        (
            [user("<system-reminder>\nMeanwhile the user wrote:\nwrite a.txt: one\n\ntwo\n\nGo on with it.\n</system-reminder>")],
            "write",
            "one\n\ntwo",
        ),
    ],
    ids=["beside a reminder", "the last message alone", "sent while another was at work"],
)
def test_the_command_is_found_in_what_is_sent(asked, tool, content):
    call = only_call(*asked)
    assert (call.tool, call.args.get("content")) == (tool, content)


def test_the_title_is_the_first_words():
    [step] = title(request(user("please explain to me how the session store works in detail"), model="title"))
    assert step.text == "please explain to me how the session store"


async def test_the_rules_provider_plays_a_script_first():
    provider = rules_provider([[Say("scripted")]])
    assert streamed_text(await events(provider)) == "scripted"
    assert streamed_text(await events(provider)) != "scripted"


def test_answers_carry_an_estimate_of_tokens():
    usage = steps(user("x" * 400))[-1].fields
    assert usage["input"] > 100
    assert usage["output"] > 10
