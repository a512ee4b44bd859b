"""The scripted provider: turns that were written down, and answers by rule."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from doc_snippets import blocks
from fake_provider import answer as model_said
from fake_provider import call, finish, said, text, thought, user
from fake_provider import events_of as events
from running_server import ROOT

from app.providers import base
from app.providers.catalogue import scripted_info
from app.providers.scripted import TITLE, Call, Cut, Fail, Say, ScriptedProvider, ScriptError, load_script, parse_step
from app.providers.scripted_rules import answer, rules_provider, title

TOOLS = ("read", "write", "edit", "bash", "glob", "todowrite", "question")


def request(*messages: base.ModelMessage, model: str = "rules", tools: Sequence[str] = TOOLS) -> base.ModelRequest:
    specs = tuple(base.ToolSpec(tool, "", {"type": "object"}) for tool in tools)
    return base.ModelRequest(scripted_info().models[model], ("system",), messages, "ses_1", specs)


def called(tool: str, text: str = "one\ntwo", is_error: bool = False) -> tuple[base.AssistantTurn, base.ToolTurn]:
    made = model_said("…", base.ToolCallBlock("c", tool, {}))
    return made, base.ToolTurn((base.ToolResultBlock("c", tool, text, is_error),))


USAGE = {"input": 100, "output": 20}
DONE, CALLED = finish("stop", **USAGE), finish("tool-calls", **USAGE)
STREAMS: dict[str, tuple[list[Any], list[base.StreamEvent]]] = {
    "pieces": ([{"text": "abcdefgh", "chunks": 2}], [*text("0", "abcd", "efgh"), DONE]),
    "reasoning": ([{"reasoning": "hm", "chunks": 1}, {"text": "a", "chunks": 1}], [*thought("0", "hm"), *text("1", "a"), DONE]),
    "a call": ([{"tool": "read", "args": {"filePath": "a"}, "id": "c1"}], [*call("c1", "read", {"filePath": "a"}), CALLED]),
    "raw arguments": ([{"tool": "read", "raw": '{"a": 1}', "id": "c1"}], [*call("c1", "read", {"a": 1}), CALLED]),
    "typed steps": ([Say("a", chunks=1), Call("read", {}, "c1")], [*text("0", "a"), *call("c1", "read", {}), CALLED]),
    "a usage and a finish": (
        [{"usage": {"input": 7, "cache_read": 3}}, {"finish": "length"}],
        [finish("length", input=7, output=20, cache_read=3)],
    ),
    "a cut, without a finish": ([{"text": "half", "chunks": 1}, {"cut": True}, {"text": "never"}], text("0", "half")),
}


@pytest.mark.parametrize(("turn", "stream"), STREAMS.values(), ids=STREAMS)
async def test_a_turn_is_streamed(turn, stream):
    assert await events(ScriptedProvider([turn])) == [base.StreamStart(), *stream]


async def test_calls_without_an_id_get_different_ones():
    stream = await events(ScriptedProvider([[{"tool": "a"}, {"tool": "b"}]]))
    assert len({event.call_id for event in stream if isinstance(event, base.ToolCall)}) == 2


@pytest.mark.parametrize("raw", ['{"filePath": ', "[1]", "3"])
async def test_arguments_that_are_no_object_are_an_invalid_call(raw):
    invalid = (await events(ScriptedProvider([[{"tool": "read", "raw": raw, "id": "c1"}]])))[2]
    assert isinstance(invalid, base.InvalidToolCall) and invalid.error
    assert (invalid.call_id, invalid.raw) == ("c1", raw)


async def test_turns_are_played_in_order_then_it_says_ok_and_a_title_takes_none():
    provider, asked = ScriptedProvider([[{"text": "one"}], [{"text": "two"}]]), request(user("hi"), model="title")
    provider.add([{"text": "three"}])
    assert said(await events(provider, asked)) == TITLE and provider.requests == [asked]
    assert [said(await events(provider)) for _ in range(4)] == ["one", "two", "three", "ok"]


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 400, 401])
async def test_a_status_fails_the_request_before_anything_is_streamed(status):
    step = {"status": status, "headers": {"retry-after-ms": "5"}, "body": {"error": "x"}, "message": "no"}
    with pytest.raises(base.ApiFailure) as caught:
        await anext(ScriptedProvider([[{"text": "never"}, step]]).stream(request()))
    failure = caught.value
    assert (failure.status, failure.retryable, failure.message) == (status, status > 401, "no")
    assert (failure.headers, failure.body) == ({"retry-after-ms": "5"}, '{"error":"x"}')


async def test_a_turn_waits_for_its_event():
    gate = asyncio.Event()
    stream = ScriptedProvider([[{"text": "a", "chunks": 1}, {"wait": gate}, {"text": "b", "chunks": 1}]]).stream(request())
    before = [await anext(stream) for _ in range(4)]
    rest = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    assert before[-1] == base.BlockEnd("text", "0")
    assert not rest.done()
    gate.set()
    assert await rest == base.BlockStart("text", "2")
    await stream.aclose()


async def test_a_delay_is_kept():
    before = asyncio.get_running_loop().time()
    await events(ScriptedProvider([[{"text": "abcd", "chunks": 4, "delay": 0.005}, {"sleep": 0.01}]]))
    assert asyncio.get_running_loop().time() - before >= 0.03


@pytest.mark.parametrize(
    "content", ["nope", "[]", '{"turns": 1}', '{"turns": [{"text": "a"}]}', '{"turns": ["a"]}', '{"turns": [["a"]]}', None]
)
def test_a_script_file_and_one_that_is_none(tmp_path, content):
    script = tmp_path / "s.json"
    if content is not None:
        script.write_text(content)
    with pytest.raises(ScriptError):
        load_script(script)
    script.write_text(json.dumps({"turns": [[{"text": "a"}], [{"status": 429}, {"cut": True}]]}))
    assert load_script(script) == [(Say("a"),), (Fail(429), Cut())]


def test_the_script_of_the_documentation_can_be_played(tmp_path):
    (script,) = [block for block in blocks((ROOT / "docs/configuration.md").read_text()) if block.kind == "json script"]
    (tmp_path / "s.json").write_text(script.code)
    assert len(load_script(tmp_path / "s.json")) == 3


def test_a_step_that_is_not_one_says_so():
    odd = [
        {},
        {"txt": "a"},
        {"text": "a", "speed": 1},
        {"finish": "done"},
        {"usage": {"tokens": 1}},
        {"tool": "a", "arguments": {}},
    ]
    for step in odd:
        with pytest.raises(ScriptError, match="step"):
            parse_step(step)


def steps(*messages: base.ModelMessage, tools: Sequence[str] = TOOLS) -> list[Any]:
    return list(answer(request(*messages, tools=tools)))


def only_call(*messages: base.ModelMessage, tools: Sequence[str] = TOOLS) -> Call:
    [call] = [step for step in steps(*messages, tools=tools) if isinstance(step, Call)]
    return call


COMMANDS: dict[str, tuple[str, dict[str, Any]]] = {
    "read a.txt": ("read", {"filePath": "a.txt"}),
    "Read src/a.txt": ("read", {"filePath": "src/a.txt"}),
    "write a.txt: hello\nworld": ("write", {"filePath": "a.txt", "content": "hello\nworld"}),
    "run git status": ("bash", {"command": "git status", "description": "Runs git status"}),
    "list files": ("glob", {"pattern": "*"}),
}


def test_commands_become_calls():
    for asked, (tool, args) in COMMANDS.items():
        first, made, *_ = steps(user(asked))
        assert isinstance(first, Say) and made == Call(tool, args)
    [question] = only_call(user("ask Which colour?: red, blue")).args["questions"]
    assert (question["question"], [option["label"] for option in question["options"]]) == ("Which colour?", ["red", "blue"])
    todos = only_call(user("todo milk, eggs")).args["todos"]
    assert [(todo["content"], todo["status"]) for todo in todos] == [("milk", "pending"), ("eggs", "pending")]


def test_an_edit_reads_first_then_edits_then_closes():
    asked, read = user("edit a.txt: old -> new"), called("read")
    assert only_call(asked) == Call("read", {"filePath": "a.txt"})
    assert only_call(asked, *read) == Call("edit", {"filePath": "a.txt", "oldString": "old", "newString": "new"})
    closing = steps(asked, *read, *called("edit"))
    assert not [step for step in closing if isinstance(step, Call)] and "`edit` succeeded" in closing[0].text
    failed = steps(asked, *called("read", "File not found", is_error=True))
    assert failed[0].text == "`read` failed: File not found"


def test_a_file_that_stands_there_is_read_before_it_is_written_over():
    asked, refused = user("write a.txt: x"), called("write", "You must read file a.txt before overwriting it", is_error=True)
    assert only_call(asked, *refused) == Call("read", {"filePath": "a.txt"})
    assert only_call(asked, *refused, *called("read")) == Call("write", {"filePath": "a.txt", "content": "x"})
    assert "`write` succeeded" in steps(asked, *refused, *called("read"), *called("write"))[0].text
    assert "`write` failed" in steps(asked, *refused, *called("read"), *refused)[0].text
    assert "`write` failed" in steps(asked, *called("write", "No", is_error=True))[0].text


def test_what_came_of_a_command_is_said():
    assert steps(user("read a"), *called("read"))[0].text == "Done: `read` succeeded (2 lines of output)."
    missing = steps(user("run ls"), tools=["read"])[0].text
    assert missing == "That needs the tool `bash`, which this agent does not have."
    patch = only_call(user("write a.txt: x"), tools=["apply_patch"]).args["patchText"]
    assert patch == "*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch"


def test_think_reasons_and_long_streams_so_many_tokens_that_are_counted():
    assert steps(user("think"))[0].kind == "reasoning"
    long = steps(user("long 50"))[0]
    assert (long.chunks, len(long.text.split())) == (50, 50)
    usage = steps(user("x" * 400))[-1].fields
    assert usage["input"] > 100 and usage["output"] > 10


async def test_fail_fails():
    with pytest.raises(base.ApiFailure) as caught:
        await events(rules_provider(), request(user("fail 429")))
    assert (caught.value.status, caught.value.retryable) == (429, True)


def test_anything_else_explains_what_it_is_and_understands_and_a_title_is_the_first_words():
    for asked in ("help", "what is the meaning of it?", ""):
        explained = steps(user(asked))[0].text
        assert "no language model" in explained and "`read PATH`" in explained
    [step] = title(request(user("please explain to me how the session store works in detail"), model="title"))
    assert step.text == "please explain to me how the session store"


def test_the_command_is_found_in_what_is_sent():
    assert only_call(user("<reminder>plan</reminder>", "read a.txt")).tool == "read", "beside a reminder"
    assert only_call(user("read a"), model_said("no"), user("run ls")).tool == "bash", "the last message alone"
    steered = "<system-reminder>\nMeanwhile the user wrote:\nwrite a.txt: one\n\ntwo\n\nGo on with it.\n</system-reminder>"
    made = only_call(user(steered))
    assert (made.tool, made.args["content"]) == ("write", "one\n\ntwo"), "sent while another was at work"


async def test_the_rules_provider_plays_a_script_first():
    provider = rules_provider([[Say("scripted")]])
    assert [said(await events(provider, request(user("hi")))) == "scripted" for _ in range(2)] == [True, False]
