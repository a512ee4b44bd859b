"""What is generated of the client: every operation and value of the API, and the sync client from the async one.

That it is current is tested in tests/wire/test_openapi_current.py.
"""

import inspect
import json
import re
from pathlib import Path
from typing import Any

import httpx
import yaml
from running_server import ROOT

import opensession_client
from generator.annotations import annotation, python_name, snake
from generator.first_api import SECOND_API
from generator.operations import STREAMS
from generator.sync import sync_module
from opensession_client import AsyncOpensession, Opensession, operations
from opensession_client.models import Event, PermissionObjectConfig, PromptInput, Session, TextPartInput, ViewedFile


def test_every_operation_is_there() -> None:
    api: dict[str, Any] = yaml.load((ROOT / "openapi.yaml").read_text(), yaml.CSafeLoader)
    described = {
        operation["operationId"]
        for path, methods in api["paths"].items()
        for operation in methods.values()
        if isinstance(operation, dict) and not path.startswith(SECOND_API)
    }
    missing = [each for each in described - set(STREAMS) if not hasattr(operations, snake(each))]
    assert missing == [] and len(described) > 70


def test_both_clients_have_the_same_methods() -> None:
    renamed = {"aclose": "close", "__aenter__": "__enter__", "__aexit__": "__exit__"}
    methods = {renamed.get(name, name) for name in vars(AsyncOpensession)}
    assert methods == set(vars(Opensession))
    assert inspect.signature(AsyncOpensession.prompt).parameters.keys() == inspect.signature(Opensession.prompt).parameters.keys()


def test_no_async_is_left_in_the_sync_client() -> None:
    for file in (Path(opensession_client.__file__).parent / "_sync").glob("*.py"):
        code = re.sub(r'"""[^"]*"""', "", file.read_text())
        assert not re.search(r"\b(async|await|asyncio)\b|\b[Aa]sync[A-Z]|__a(enter|exit|iter|next)__", code), file.name


def test_the_sync_client_is_the_async_one_without_waiting() -> None:
    source = "async def f(x: AsyncIterator[int]) -> None:\n    async with x as y:\n        await asyncio.sleep(await g(y))\n"
    assert sync_module("f.py", source).splitlines()[1:] == [
        "def f(x: Iterator[int]) -> None:",
        "    with x as y:",
        "        time.sleep(g(y))",
    ]


def test_a_mark_is_there_only_if_the_server_sends_it() -> None:
    assert ViewedFile.model_validate({"type": "text", "content": "plain"}).encoding is None
    assert ViewedFile.model_validate({"type": "text", "content": "eA==", "encoding": "base64"}).encoding == "base64"


def test_values_are_sent_under_the_names_of_the_api() -> None:
    prompt = PromptInput(parts=[TextPartInput(text="hi")], message_id="msg_1", no_reply=True)
    request = operations.session_prompt("ses_/", prompt, directory="/a b").request(httpx.Client(base_url="http://server"))
    assert json.loads(request.content) == {"messageID": "msg_1", "noReply": True, "parts": [{"type": "text", "text": "hi"}]}
    assert request.url.raw_path == b"/session/ses_%2F/message?directory=%2Fa+b"


def test_fields_of_a_newer_server_are_kept() -> None:
    tokens, time = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}, {"created": 1, "updated": 2}
    texts = {"id": "ses_1", "slug": "s", "projectID": "p", "directory": "/", "title": "t", "version": "1"}
    values = {**texts, "cost": 0, "tokens": tokens, "time": time, "newField": {"a": 1}}
    session = Session.model_validate(values)
    assert session.project_id == "p" and session.model_extra == {"newField": {"a": 1}}
    assert session.model_dump(exclude_none=True) == values


def test_names_become_python_s() -> None:
    names = {
        "sessionID": "session_id",
        "baseURL": "base_url",
        "$schema": "schema_",
        "list": "list_",
        "from": "from_",
        "copy": "copy_",
    }
    assert {name: python_name(name) for name in names} == names


def test_a_schema_becomes_an_annotation() -> None:
    tagged = {"oneOf": [{"$ref": "#/x/A"}, {"$ref": "#/x/B"}], "discriminator": {"propertyName": "kindID"}}
    shapes: list[tuple[dict[str, Any], str]] = [
        ({"type": "array", "items": {"type": "integer"}}, "list[int]"),
        ({"type": "object", "additionalProperties": {"$ref": "#/x/A"}}, "dict[str, m.A]"),
        ({"type": "object", "additionalProperties": True}, "dict[str, Any]"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "str | None"),
        ({"enum": ["a", "b"], "type": "string"}, "Literal['a', 'b']"),
        ({"const": False, "type": "boolean"}, "Literal[False]"),
        (tagged, 'Annotated[m.A | m.B, Field(discriminator="kind_id")]'),
        ({"type": ["string", "null"]}, "Any"),
    ]
    assert [annotation(schema, "m.") for schema, _ in shapes] == [expected for _, expected in shapes]
    assert Event and PermissionObjectConfig
