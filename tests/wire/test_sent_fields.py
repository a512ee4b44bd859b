"""Nothing that a client sends is dropped silently.

Every field of a body and every query parameter that OpenCode 1.1.34 or 1.18.33 describes is used here, refused by an error that
names it, or stands in docs/compatibility-descriptions.md with the reason why it changes nothing. So is each key of opencode.json.
"""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from api_parity import ANYTHING, DESCRIPTIONS, TESTS, Json, content, described, nameless, operations, query_names, rows_of, shapes
from every_route import api_routes
from fastapi.dependencies.models import Dependant
from pydantic import BaseModel, ValidationError
from running_app import RunningApp

from app.project.config.keys import UNUSED, unused_keys
from app.project.location import Location
from app.schema import config
from app.schema.config import Config
from app.schema.session import CreateInput

ROOT = TESTS.parent
PATH_VALUES = {"sessionID": "ses_1", "messageID": "msg_1", "ptyID": "pty_1", "integrationID": "anthropic"}

# Parts, errors and icons are kept and shown as they are sent, a toast is passed on; what is refused is refused by any value.
SHOWN_AS_SENT = {
    *("attempt", "character", "range", "response_body", "response_headers", "overflow", "tail_start_id", "override", "duration")
}
REFUSED = {"workspace_id"}
OF_THE_SOCKET = {"cursor", "ticket"}
"""Parameters of a terminal's connection, which no route reads: tests/api/test_api_pty.py."""

OF_CLIENTS = {"$schema", "theme", "keybinds", "tui", "layout", "username", "disable_paste_summary"}
"""Keys of the configuration that clients read from `GET /config`."""
OLD_NAMES = {"maxSteps"}
"""Taken for the new ones where they are read."""


def filled(path: str) -> str:
    """The path of a request, with something in the place of each parameter."""
    request_id = "per_1" if "permission" in path else "que_1"
    values = {**PATH_VALUES, "requestID": request_id}
    return re.sub(r"\{(\w+)\}", lambda name: values.get(name[1], "text"), path)


async def test_what_is_sent_is_used_refused_or_listed(app: RunningApp) -> None:
    """A session that is not there is told of before what is wrong with a body."""
    place = Location(str(app.directory), "global", "", is_git=False)
    await app.services.sessions.create(place, CreateInput(), session_id=PATH_VALUES["sessionID"])
    found = [
        line
        for api in map(described, DESCRIPTIONS)
        for line in (*await dropped_fields(app, api), *unused_fields(api), *await unused_parameters(app, api))
    ]
    listed = rows_of("compatibility-descriptions.md", "What is sent and changes nothing")
    rows = {row: re.compile(re.escape(row).replace(r"\*", ".*")) for row in listed}  # `*` stands for any text
    assert [line for line in found if not any(row.fullmatch(line) for row in rows.values())] == [], "use them, or list them"
    assert [name for name, row in rows.items() if not any(map(row.fullmatch, found))] == [], "delete the rows of these"
    assert all(len(reason) > 20 for reason in listed.values())


# Bodies.


async def dropped_fields(app: RunningApp, api: Json) -> list[str]:
    """A value of a wrong type in its place is not noticed, or not by an error that names it."""
    return [
        f"{method} {operation['path']} {field}"
        for (method, _), operation in operations(api).items()
        if "requestBody" in operation
        for field, body in spoiled_bodies(api, content(operation["requestBody"]))
        if not await is_refused_by_name(app, method, filled(operation["path"]), field, body)
    ]


async def is_refused_by_name(app: RunningApp, method: str, path: str, field: str, body: Any) -> bool:
    answer = await app.client.request(method, path, json=body)
    if answer.status_code != 400:
        return False
    name = last_name(field)
    return not name or name in re.findall(r"[\w$]+", json.dumps(told(answer.json())))


def last_name(field: str) -> str:
    return re.sub(r"\[\]|\{\}", "", field).rpartition(".")[2]


def told(error: Json) -> Any:
    """What an error says besides showing the body that was sent."""
    errors = [{key: part for key, part in one.items() if key != "input"} for one in error.get("errors", [])]
    return [errors, error.get("message"), error.get("field")]


async def test_a_field_that_is_dropped_is_found(app: RunningApp) -> None:
    schema = {"type": "object", "properties": {"title": {"type": "string"}, "unheard": {"type": "string"}}}
    body = {"content": {"application/json": {"schema": schema}}}
    assert await dropped_fields(app, {"paths": {"/session": {"post": {"requestBody": body}}}}) == ["POST /session unheard"]


@cache
def read_names() -> set[str]:
    """The attributes that the program reads, and the keys that it looks up by name."""
    trees = [
        ast.parse(file.read_text()) for file in (ROOT / "app").rglob("*.py") if file != ROOT / "app" / "schema" / "config.py"
    ]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    attributes = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    return attributes | {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z])([A-Z])", lambda letter: f"_{letter[1].lower()}", name.replace("ID", "Id").replace("URL", "Url"))


def unused_fields(api: Json) -> list[str]:
    """Those whose name the program does not know."""
    return [
        f"{method} {operation['path']} {field}"
        for (method, path), operation in operations(api).items()
        if not path.endswith("/config")
        for field, _ in spoiled_bodies(api, content(operation.get("requestBody", {})))
        if not is_used(field)
    ]


def is_used(field: str) -> bool:
    return snake_case(last_name(field)) in read_names() | SHOWN_AS_SENT | REFUSED


# Query parameters.


def used_parameters(dependant: Dependant) -> Iterator[str]:
    """The query parameters that the functions of a route use, by the names that clients send."""
    assert dependant.call
    called = dependant.call if inspect.isroutine(dependant.call) else type(dependant.call).__call__
    loaded = {
        node.id
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(called))))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }
    yield from (field.alias for field in dependant.query_params if field.name in loaded)
    for below in dependant.dependencies:
        if below.name is None or below.name in loaded:
            yield from used_parameters(below)


async def unused_parameters(app: RunningApp, api: Json) -> list[str]:
    routes = {(method, nameless(each.path_format)): each for each in api_routes(app.fastapi) for method in each.methods}
    return [
        f"{method} {operation['path']} ?{name}"
        for (method, path), operation in operations(api).items()
        for name in sorted(query_names(operation))
        if {name, f"{name}[directory]"}.isdisjoint(used_parameters(routes[method, path].dependant))
        and not (path.endswith("/connect") and name in OF_THE_SOCKET)
        and not await is_refused_query(app, method, filled(operation["path"]), name)
    ]


async def is_refused_query(app: RunningApp, method: str, path: str, name: str) -> bool:
    answer = await app.client.request(method, path, params={name: "wrk_1"}, json={} if method != "GET" else None)
    return answer.status_code in (400, 404) and "wrk_1" in answer.text


async def test_a_query_parameter_that_is_not_used_is_found(app: RunningApp) -> None:
    parameters = [{"in": "query", "name": name} for name in ("limit", "unheard")]
    assert await unused_parameters(app, {"paths": {"/session": {"get": {"parameters": parameters}}}}) == ["GET /session ?unheard"]


# The configuration.


@pytest.mark.parametrize("version", DESCRIPTIONS)
def test_every_key_of_opencodes_configuration_is_accepted(version: str) -> None:
    """With each value that it is described to have: a file that OpenCode reads is no error here."""
    api, refusals = described(version), []
    for key, body in fitting_bodies(api, api["components"]["schemas"]["Config"]):
        try:
            Config.model_validate(body)
        except ValidationError as error:
            if last_name(key) != "color" or "msg_1" not in str(body):
                refusals.append(str(error))
    assert refusals == []


def test_every_key_of_the_configuration_is_used_or_named_as_unused() -> None:
    models = [model for model in vars(config).values() if isinstance(model, type) and issubclass(model, BaseModel)]
    fields = {field.alias or name: name for model in models for name, field in model.model_fields.items()}
    assert {key for key, name in fields.items() if not {key, name} & read_names()} - named_as_unused() - OLD_NAMES == set()


def named_as_unused() -> set[str]:
    """With what stands below a key that is unused as a whole."""
    keys = [key.replace(".*", "{}") for key in {*UNUSED, *OF_CLIENTS}]
    paths = [
        path
        for api in map(described, DESCRIPTIONS)
        for path, _ in spoiled_bodies(api, api["components"]["schemas"]["Config"])
        if path.startswith(tuple(keys))
    ]
    return {word for path in [*paths, *keys] for word in re.findall(r"[\w$]+", path)}


def test_a_key_that_changes_nothing_is_named_with_its_place_and_shown_on_the_page() -> None:
    assert rows_of("compatibility.md", "Keys of the configuration that change nothing") == UNUSED
    own = {"options": {"headerTimeout": 1}}
    given = {"references": {"docs": "../docs"}, "compaction": {"auto": True}, "provider": {"own": own}}
    assert unused_keys(given) == {
        "provider.own.options.headerTimeout": UNUSED["provider.*.options.headerTimeout"],
        "references": UNUSED["references"],
    }


# Bodies made from a description, field by field. A field's name is its way from the top: `parts[].text`, `[]` for an item of a
# list, `{}` for a value of a map.

Wrap = Callable[[Any], Any]
"""Puts a value into the place of the body that it is for."""

_EXAMPLES = {"string": "msg_1", "integer": 1, "number": 1, "boolean": True, "null": None}
_WRONG = {"object": {"no": "such"}, "array": ["none"], "string": "none"}


def spoiled_bodies(api: Json, schema: Json) -> Iterator[tuple[str, Any]]:
    """By field: as described but for this one, whose value is of a type that it cannot have. Not of fields that take any."""
    for name, inner, wrap in _fields(api, schema, "", lambda value: value, set()):
        alternatives = shapes(api, inner)
        types = {shape.get("type", "string") for shape in alternatives}
        wrong = [value for kind, value in _WRONG.items() if kind not in types]
        if wrong and ANYTHING not in alternatives:
            yield name, wrap(wrong[0])


def fitting_bodies(api: Json, schema: Json) -> Iterator[tuple[str, Any]]:
    """By field: one for each shape and each value that it is described to have."""
    for name, inner, wrap in _fields(api, schema, "", lambda value: value, set()):
        for shape in shapes(api, inner):
            for value in shape.get("enum") or [example(api, shape)]:
                yield name, wrap(value)


def _fields(api: Json, schema: Json, name: str, wrap: Wrap, seen: set[str]) -> Iterator[tuple[str, Json, Wrap]]:
    """Those of a shape that is in several places, in the first one."""
    for shape in shapes(api, schema):
        signature = json.dumps(shape, sort_keys=True)
        if signature not in seen:
            seen.add(signature)
            for inner_name, inner_schema, inner_wrap in _inside(api, shape, name, wrap):
                yield inner_name, inner_schema, inner_wrap
                yield from _fields(api, inner_schema, inner_name, inner_wrap, seen)


def _inside(api: Json, shape: Json, name: str, wrap: Wrap) -> Iterator[tuple[str, Json, Wrap]]:
    """The fields, items or values of one shape, each with the least that it needs beside it."""
    if shape.get("type") == "array":
        yield f"{name}[]", shape.get("items", ANYTHING), lambda value: wrap([value])
    if shape.get("type") == "object":
        least = example(api, shape)
        for field, schema in shape.get("properties", {}).items():
            yield f"{name}.{field}".lstrip("."), schema, lambda value, field=field: wrap({**least, field: value})
        if isinstance(values := shape.get("additionalProperties"), dict):
            yield f"{name}{{}}", values, lambda value: wrap({**least, "key": value})


def example(api: Json, schema: Json) -> Any:
    """A value of the schema's first shape: an object has what it requires, a list one item."""
    shape = shapes(api, schema)[0]
    match shape.get("type", "string"):
        case _ if "const" in shape or "enum" in shape:
            return shape["const"] if "const" in shape else shape["enum"][0]
        case "array":
            return [example(api, item) for item in shape.get("prefixItems") or [shape.get("items", ANYTHING)]]
        case "object":
            return {name: example(api, shape["properties"][name]) for name in shape.get("required", ())}
        case kind:
            return _of_pattern(shape["pattern"]) if "pattern" in shape else _EXAMPLES[kind]


def _of_pattern(pattern: str) -> str:
    """An id begins with its pattern; the other one is of colours."""
    return "#ffcc00" if pattern.startswith("^#") else pattern.strip("^$") + "_1"


def test_an_example_of_each_type_is_of_it() -> None:
    shape = {"type": "object", "required": ["id", "tags"], "properties": {"id": {"type": "string", "pattern": "^ses"}}}
    shape["properties"]["tags"] = {"type": "array", "items": {"enum": ["a", "b"]}}
    assert example({}, shape) == {"id": "ses_1", "tags": ["a"]}
