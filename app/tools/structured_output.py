"""The tool by which a model gives a structured answer: an object that fits the JSON schema in its prompt's `format`.

Patterns and formats of texts are shown to the model and not checked: matching a client's pattern could take for ever. So could
references and alternatives, which multiply: a check has SECONDS.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from functools import cache
from typing import Any

import orjson

from app.tools.base import Arguments, ExternalTool, ToolContext, ToolError, ToolResult

STRUCTURED_OUTPUT = "StructuredOutput"
_DESCRIPTION = (
    "Gives your final answer, in the form that the user asked for. Do all other work first, then call this tool exactly once: "
    "nothing follows it. The arguments are the answer, as JSON that fits the schema."
)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

MAX_PROBLEM_CHARACTERS = 500
SECONDS = 2.0
"""Of the processor, for the check of a schema or an answer."""
_UNTIL: ContextVar[float] = ContextVar("_UNTIL")
"""The thread's time at which the present check is given up."""

Schema = dict[str, Any]


class UnusableSchema(ValueError):
    """Says what is wrong with a schema. `path` leads to it."""

    def __init__(self, message: str, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class StructuredOutputTool(ExternalTool):
    def __init__(self, schema: Schema, accept: Callable[[dict[str, Any]], None]) -> None:
        """`accept` is called with an answer that fits the schema."""
        super().__init__(STRUCTURED_OUTPUT, _DESCRIPTION, {"type": "object", **schema})
        self._accept = accept

    async def execute(self, args: Arguments, ctx: ToolContext) -> ToolResult:
        if problem := await asyncio.to_thread(misfit, self.schema, args.root):
            raise ToolError(f"The answer does not fit the schema: {problem}. Correct it, and call {STRUCTURED_OUTPUT} again.")
        self._accept(args.root)
        return ToolResult("Structured Output", "The answer was accepted.", {"valid": True})


def misfit(schema: Schema, answer: dict[str, Any]) -> str | None:
    """Where and why an answer does not fit; None if it does."""
    from jsonschema.exceptions import best_match

    try:
        error = best_match(_validator(schema).iter_errors(answer))
    except UnusableSchema as unusable:
        return str(unusable)
    return None if error is None else f"{error.json_path}: {error.message[:MAX_PROBLEM_CHARACTERS]}"


def check_schema(schema: Schema) -> None:
    """Raises UnusableSchema."""
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable

    try:
        for path, key, value in _entries(schema):
            _check_entry(path, key, value)
        _check_whole(schema)
    except SchemaError as error:
        raise UnusableSchema(
            f"This is no JSON schema: {error.message[:MAX_PROBLEM_CHARACTERS]}", tuple(error.absolute_path)
        ) from error
    except Unresolvable as error:
        raise UnusableSchema(f"A $ref names a place that is not in the schema: {error}") from error
    except RecursionError as error:
        raise UnusableSchema("This schema is too deep, or refers to itself without an end") from error
    except UnusableSchema:
        raise
    except (AttributeError, TypeError, ValueError) as error:  # the libraries do not look what these are
        raise UnusableSchema("This is no JSON schema: a $schema, $id or $ref in it is no address") from error


def _check_whole(schema: Schema) -> None:
    from jsonschema import FormatChecker
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012, specification_with

    if schema.get("type", "object") != "object":
        raise UnusableSchema("The answer is an object: `type` must be object. Make anything else a property of one", ("type",))
    validator = _validator(schema)
    validator.check_schema(schema, format_checker=FormatChecker(formats=()))
    written_for = specification_with(str(schema.get("$schema", "")), default=DRAFT202012)
    resolver = Registry().resolver_with_root(written_for.create_resource(schema))
    for _, key, value in _entries(schema):
        if key in _REFERENCES and isinstance(value, str):
            resolver.lookup(value)
    validator.is_valid({})  # raises RecursionError for a schema that refers to itself without an end


def _entries(schema: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str, Any]]:
    """The entries of all objects in the schema, at any depth: path, key, value."""
    children: Iterable[tuple[Any, Any]] = ()
    if isinstance(schema, dict):
        children = schema.items()
    elif isinstance(schema, list):
        children = enumerate(schema)
    for key, value in children:
        if isinstance(key, str):
            yield (*path, key), key, value
        yield from _entries(value, (*path, key))


def _check_entry(path: tuple[str | int, ...], key: str, value: Any) -> None:
    if key in _REFERENCES and isinstance(value, str) and not value.startswith("#"):
        raise UnusableSchema(f"Only places in this schema can be referred to (`#/$defs/…`), not {value[:100]}", path)
    if key == "patternProperties" and isinstance(value, dict) and "properties" not in path[-2:-1]:
        raise UnusableSchema("Properties cannot be described by patterns of their names", path)


def _validator(schema: Schema) -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from referencing import Registry

    kind = _bounded(validator_for(schema, default=Draft202012Validator))
    _UNTIL.set(time.thread_time() + SECONDS)
    return kind(schema, registry=Registry())  # an empty one, so nothing is fetched


@cache
def _bounded(kind: Any) -> Any:
    from jsonschema.validators import extend

    checks = {**kind.VALIDATORS, "pattern": lambda *_: (), "uniqueItems": _repeated_items}
    return extend(kind, {name: _timed(check) for name, check in checks.items()})


def _timed(check: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*args: Any) -> Any:
        if time.thread_time() > _UNTIL.get():
            raise UnusableSchema(f"It takes more than {SECONDS:g} s to check: what this schema refers to multiplies")
        return check(*args)

    return timed


def _repeated_items(validator: Any, is_wanted: bool, items: Any, schema: Any) -> Iterator[Exception]:
    """The library's own check takes time by the square of their number."""
    from jsonschema.exceptions import ValidationError

    if is_wanted and isinstance(items, list):
        different = {orjson.dumps(item, option=orjson.OPT_SORT_KEYS) for item in items}
        if len(different) < len(items):
            yield ValidationError("the items are not all different")
