"""openapi.yaml's schemas as pydantic models."""

import re
from collections.abc import Iterator

from generator.annotations import UNIONS, Schema, annotation, docstring, python_name, tagged

HEAD = '''\
"""The API's values, generated from openapi.yaml by `make openapi`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from opensession_client.wire import Wire
'''


def models_module(api: Schema) -> str:
    schemas: dict[str, Schema] = api["components"]["schemas"]
    classes = [_class(name, schema) for name, schema in schemas.items() if "properties" in schema]
    aliases = {name: annotation(schema) for name, schema in schemas.items() if "properties" not in schema}
    # They name classes when they are evaluated, so they stand behind them; the classes' own annotations are read later.
    return "\n\n".join([HEAD, *classes, *_named_unions(api), *_in_order(aliases)]) + "\n"


def _in_order(aliases: dict[str, str]) -> Iterator[str]:
    """Each behind those that it names."""
    left = dict(aliases)
    while left:
        name = next(name for name, written in left.items() if not left.keys() & set(re.findall(r"\w+", written)))
        yield f"{name} = {left.pop(name)}"


def _class(name: str, schema: Schema) -> str:
    required = schema.get("required", ())
    lines = [f"class {name}(Wire):"]
    if "description" in schema:
        lines.append(docstring(schema["description"]))
    for wire, field in schema["properties"].items():
        lines += _field(wire, field, wire in required)
    return "\n".join(lines if len(lines) > 1 else [*lines, "    pass"])


def _field(wire: str, schema: Schema, required: bool) -> Iterator[str]:
    name, written = python_name(wire), annotation(schema)
    if not required and written != "Any" and not written.endswith("| None"):
        written += " | None"
    if name != wire:
        written = f'Annotated[{written}, Field(alias="{wire}")]'
    yield f"    {name}: {written}{_default(schema, required)}"
    if "description" in schema:
        yield docstring(schema["description"])


def _default(schema: Schema, required: bool) -> str:
    """What the server fills in is left out; a tag is the same in every value."""
    if required and "const" in schema:
        return f" = {schema['const']!r}"
    return "" if required else " = None"


def _named_unions(api: Schema) -> Iterator[str]:
    seen = set()
    for union in _tagged_unions(api):
        name = UNIONS.get(annotation(union["oneOf"][0]))
        if name and name not in seen:
            seen.add(name)
            yield f"{name} = {tagged(union)}"


def _tagged_unions(value: object) -> Iterator[Schema]:
    if isinstance(value, dict):
        if "oneOf" in value and "discriminator" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from _tagged_unions(inner)
