"""Structured answers: a prompt whose `format` is a JSON schema is answered by an object that fits it, or by an error."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp
from turns import BIG, call, parts, priced, requests, say, talking, task, tools, types

from app.providers.base import ModelRequest, TextBlock, UserTurn
from app.providers.scripted_rules import rules_provider

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}, "note": {"type": ["string", "null"]}}, "required": ["n"]}
FORMAT = {"type": "json_schema", "schema": SCHEMA}
WINDOW = {"limit": {"context": 10_000, "output": 1_000}}
FULL = {"usage": {"input": 9_500, "output": 20}}


def answering(**fields: Any) -> dict[str, Any]:
    return call("StructuredOutput", **fields)


def offered(request: ModelRequest) -> list[str]:
    return [tool.id for tool in request.tools]


def last_text(request: ModelRequest) -> str:
    turn = request.messages[-1]
    return " ".join(block.text for block in turn.content if isinstance(block, TextBlock)) if isinstance(turn, UserTurn) else ""


@pytest.fixture
async def session(app: RunningApp) -> str:
    return str((await app.create_session(title="T"))["id"])


async def test_the_answer_has_the_form_that_the_prompt_asks_for(app: RunningApp, session: str) -> None:
    app.provider.add([say("Let me see."), answering(n=3, note=None)])
    async with app.events() as events:
        answer = await app.prompt(session, "How many?", format=FORMAT)
        await events.until("session.idle")
    assert answer["info"]["structured"] == {"n": 3, "note": None} and "error" not in answer["info"]
    assert answer["info"]["finish"] == "tool-calls", "as OpenCode has it"
    assert types(answer) == ["step-start", "text", "tool", "step-finish"]
    (request,) = requests(app)
    assert request.requires_tool and request.tools[-1].id == "StructuredOutput" and request.tools[-1].parameters == SCHEMA
    assert "StructuredOutput" in request.system[-1]
    prompt, stored = await app.messages(session)
    assert prompt["info"]["format"] == FORMAT and stored == answer
    assert events.of_type("message.updated")[-1].properties["info"]["structured"] == {"n": 3, "note": None}
    app.provider.add([say("Three.")])
    plain = await app.prompt(session, "And in words?", format={"type": "text"})
    assert "structured" not in plain["info"] and types(plain) == ["step-start", "text", "step-finish"]
    assert not requests(app)[-1].requires_tool and "StructuredOutput" not in offered(requests(app)[-1])


async def test_an_answer_that_does_not_fit_is_asked_for_again(app: RunningApp, session: str) -> None:
    app.provider.add([answering(n="three")], [say("It is three.")], [answering(n=3)])
    answer = await app.prompt(session, "How many?", format=FORMAT)
    assert answer["info"]["structured"] == {"n": 3}
    _, wrong, text, _ = await app.messages(session)
    assert "$.n: 'three' is not of type 'integer'" in tools(wrong)[0]["state"]["error"]
    assert "error" not in wrong["info"] and "error" not in text["info"]
    _, after_wrong, after_text = requests(app)
    assert last_text(after_wrong) == "" and "StructuredOutput" in last_text(after_text)


async def test_after_some_retries_the_turn_ends_with_an_error(app: RunningApp) -> None:
    for count, asked in ((None, 3), (0, 1), (1, 2), (4, 5)):
        session, before = (await app.create_session(title="T"))["id"], len(requests(app))
        wanted = FORMAT if count is None else {**FORMAT, "retryCount": count}
        app.provider.add(*([answering(n="three")] if number % 2 else [say("Three.")] for number in range(asked)))
        async with app.events() as events:
            answer = await app.prompt(session, "How many?", format=wanted)
            await events.until("session.idle")
        error = answer["info"]["error"]
        assert (error["name"], error["data"]["retries"]) == ("StructuredOutputError", asked - 1)
        assert "structured" not in answer["info"] and len(requests(app)) - before == asked
        assert events.of_type("session.error")[0].properties == {"sessionID": session, "error": error}
        assert (await app.messages(session))[-1] == answer
        app.provider.add([answering(n=3)])
        assert "error" not in (await app.prompt(session, "Again", format=wanted))["info"]


def of_n(**schema: Any) -> dict[str, Any]:
    return {**FORMAT, "schema": {"properties": {"n": schema}}}


DOUBLED = {str(at): {"anyOf": [{"$ref": f"#/$defs/{at + 1}"}] * 2} for at in range(60)}

WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"type": "json_schema"}, ["json_schema", "schema"]),
    ({"type": "yaml"}, []),
    (of_n(type="number!"), ["schema", "properties", "n", "type"]),
    ({**FORMAT, "schema": {"type": "array"}}, ["schema", "type"]),
    (of_n(**{"$ref": "https://example.com/n"}), ["schema", "properties", "n", "$ref"]),
    (of_n(**{"$ref": "#/$defs/n"}), ["schema"]),
    *(({**FORMAT, "schema": {"$schema": other}}, ["schema"]) for other in ("http://[", 5, [])),
    ({**FORMAT, "schema": {"$id": 5}}, ["schema"]),
    *(({**FORMAT, "schema": {"$ref": f"#/required/{at}", "required": ["n"]}}, ["schema"]) for at in ("n", "0", "0/n")),
    ({**FORMAT, "schema": {"$ref": "#"}}, ["schema"]),
    ({**FORMAT, "schema": {"patternProperties": {"(a+)+$": {}}}}, ["schema", "patternProperties"]),
    ({**FORMAT, "schema": {"$ref": "#/$defs/0", "$defs": {**DOUBLED, "60": False}}}, ["schema"]),
    ({**FORMAT, "retryCount": -1}, ["json_schema", "retryCount"]),
    ({**FORMAT, "retryCount": 1000}, ["retryCount"]),
]


async def test_a_format_that_cannot_be_meant_is_refused(app: RunningApp, session: str) -> None:
    for wanted, path in WRONG:
        refusal = await app.prompt(session, "How many?", format=wanted, expect=400)
        assert refusal["errors"][0]["path"] == ["format", *path], wanted
    assert await app.messages(session) == []


async def test_a_schema_refers_within_itself_and_its_patterns_bind_the_model_alone(app: RunningApp, session: str) -> None:
    children = {"type": "array", "items": {"$ref": "#/definitions/node"}}
    properties = {"name": {"type": "string", "pattern": "^(a+)+$"}, "children": children}
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"tree": {"$ref": "#/definitions/node"}},
        "definitions": {"node": {"type": "object", "properties": properties, "required": ["name"]}},
    }
    tree = {"name": "a" * 40 + "!", "children": [{"name": "b"}]}
    app.provider.add([answering(tree={"name": "a", "children": [{}]})], [answering(tree=tree)])
    answer = await app.prompt(session, "A tree", format={"type": "json_schema", "schema": schema})
    assert answer["info"]["structured"] == {"tree": tree}
    assert len(requests(app)) == 2


async def test_an_answer_is_checked_in_bounded_time(app: RunningApp, session: str) -> None:
    """What a schema refers to multiplies with the depth of the answer; the library compares each item with all others."""
    node = {"$ref": "#/$defs/node"}
    many = {"uniqueItems": True}
    schema = {"properties": {"deep": node, "many": many}, "$defs": {"node": {"properties": {"deep": {"allOf": [node, node]}}}}}
    deep: dict[str, Any] = {}
    for _ in range(40):
        deep = {"deep": deep}
    items = [{"n": number} for number in range(5_000)]
    app.provider.add([answering(deep=deep)], [answering(many=[*items, {"n": 0}])], [answering(many=items)])
    answer = await app.prompt(session, "Much", format={**FORMAT, "schema": schema})
    assert answer["info"]["structured"] == {"many": items}
    errors = [part["state"]["error"] for message in (await app.messages(session))[1:3] for part in tools(message)]
    assert "more than 2 s" in errors[0] and "not all different" in errors[1]


async def test_a_prompt_sent_again_gets_the_same_answer_and_with_another_format_a_conflict(app: RunningApp, session: str) -> None:
    app.provider.add([answering(n=3)])
    first = await app.prompt(session, "How many?", messageID="msg_1", format=FORMAT)
    assert await app.prompt(session, "How many?", messageID="msg_1", format=FORMAT) == first
    await app.prompt(session, "How many?", messageID="msg_1", format={**FORMAT, "retryCount": 1}, expect=409)
    await app.prompt(session, "How many?", messageID="msg_1", expect=409)
    assert len(requests(app)) == 1


async def test_a_queued_prompt_keeps_its_format(app: RunningApp, session: str) -> None:
    go_on = asyncio.Event()
    app.provider.add([say("Wait"), {"wait": go_on}], [answering(n=3)])
    async with app.events() as events:
        await app.prompt_async(session, "First")
        await events.until("message.part.updated")
        queued = asyncio.create_task(app.prompt(session, "How many?", format=FORMAT, whenBusy="queue"))
        await events.until("prompt.queued")
        go_on.set()
        answer = await queued
    assert answer["info"]["structured"] == {"n": 3}


async def test_a_subagent_answers_as_ever(app: RunningApp, session: str) -> None:
    app.provider.add([task("Count")], [say("There are three.")], [answering(n=3)])
    answer = await app.prompt(session, "How many?", format=FORMAT)
    assert answer["info"]["structured"] == {"n": 3}
    _, of_the_child, _ = requests(app)
    assert "StructuredOutput" not in offered(of_the_child) and not of_the_child.requires_tool


async def test_a_conversation_that_is_compacted_meanwhile_ends_with_a_structured_answer(tmp_path: Path) -> None:
    async with talking(tmp_path, config=priced(**WINDOW), title="T") as (app, session):
        app.provider.add([call("read", filePath="a.txt"), FULL], [say("A summary.")], [answering(n=3)])
        answer = await app.prompt(session, "How many lines?", format=FORMAT, model=BIG)
        stored = await app.messages(session)
    assert answer["info"]["structured"] == {"n": 3}
    assert [parts(message, "compaction") != [] for message in stored] == [False, False, True, False, False, False]
    assert [message["info"].get("summary") for message in stored if message["info"]["role"] == "assistant"] == [None, True, None]


async def test_the_deadline_holds_for_retries_too(app: RunningApp, session: str) -> None:
    app.provider.add([say("Three.")], [{"sleep": 600}])
    answer = await app.prompt(session, "How many?", format=FORMAT, deadlineSeconds=2)
    assert answer["info"]["error"]["name"] == "MessageAbortedError"
    assert len(requests(app)) == 2


async def test_the_rules_of_the_scripted_provider_answer_so(tmp_path: Path) -> None:
    async with talking(tmp_path, provider=rules_provider()) as (app, session):
        answer = await app.prompt(session, 'answer {"n": 3}', format=FORMAT)
    assert answer["info"]["structured"] == {"n": 3}
