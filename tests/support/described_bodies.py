"""Bodies made from an API's description, field by field.

A field's name is its way from the top: `parts[].text`, `[]` for an item of a list, `{}` for a value of a map.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any

from api_parity import ANYTHING, Json, shapes

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
