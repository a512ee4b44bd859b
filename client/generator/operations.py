"""openapi.yaml's operations as functions that describe a request and the answer's type."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from generator.annotations import ANYTHING, Schema, annotation, docstring, python_name, snake

HEAD = '''\
"""Every operation of the API, generated from openapi.yaml by `make openapi`: `client.call(operations.session_get(id))`."""

from typing import Annotated, Any, Literal

from pydantic import Field

from opensession_client import models
from opensession_client.operation import Operation, segment
'''

STREAMS = ("event.subscribe", "global.event")
"""Their answer is no document: `stream` reads them."""

METHODS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    """As the API has it."""
    annotation: str
    required: bool

    @property
    def python(self) -> str:
        return python_name(self.name)

    def declared(self) -> str:
        return f"{self.python}: {self.annotation}" + ("" if self.required else " = None")


def operations_module(api: Schema) -> str:
    functions = [
        _function(method, path, operation)
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
        if method in METHODS and operation["operationId"] not in STREAMS
    ]
    return "\n\n".join([HEAD, *functions]) + "\n"


def _function(method: str, path: str, operation: Schema) -> str:
    query = list(_parameters(operation, "query"))
    body, answer = _body(operation), _answer(operation)
    arguments = [f'"{method.upper()}"', _path(path), answer]
    if query:
        arguments.append("query={" + ", ".join(f'"{each.name}": {each.python}' for each in query) + "}")
    if body:
        arguments.append(f"{body.name}={body.name}")
    lines = [
        f"def {snake(operation['operationId'])}({_signature(operation, query, body)}) -> Operation[{answer}]:",
        docstring(f"{method.upper()} {path}", operation.get("description", "")),
        f"    return Operation({', '.join(arguments)})",
    ]
    return "\n".join(lines)


def _signature(operation: Schema, query: list[_Parameter], body: _Parameter | None) -> str:
    """A path's parts and the body by place, the rest by name."""
    by_place = [*_parameters(operation, "path"), *([body] if body else [])]
    words = [each.declared() for each in by_place]
    words += ["*"] if query else []
    words += [each.declared() for each in sorted(query, key=lambda each: not each.required)]
    return ", ".join(words)


def _parameters(operation: Schema, place: str) -> Iterator[_Parameter]:
    for each in operation.get("parameters", ()):
        if each["in"] == place:
            required = each.get("required", False)
            written = annotation(each["schema"], "models.")
            yield _Parameter(each["name"], written if required else _or_none(written), required)


def _body(operation: Schema) -> _Parameter | None:
    """JSON is passed as `body`, anything else as the bytes `content`."""
    if "requestBody" not in operation:
        return None
    required = operation["requestBody"].get("required", False)
    json = operation["requestBody"]["content"].get("application/json")
    written = annotation(json["schema"], "models.") if json else "bytes"
    return _Parameter("body" if json else "content", written if required else _or_none(written), required)


def _or_none(written: str) -> str:
    return written if written == ANYTHING or written.endswith("| None") else f"{written} | None"


def _answer(operation: Schema) -> str:
    status, answer = min((status, answer) for status, answer in operation["responses"].items() if status.startswith("2"))
    content = answer.get("content", {})
    if "application/json" in content:
        return annotation(content["application/json"]["schema"], "models.")
    return "bytes" if content and status != "204" else "None"


def _path(path: str) -> str:
    """An f-string where the path has parameters."""
    parts = re.sub(r"{(\w+)}", lambda found: f"{{segment({python_name(found[1])})}}", path)
    return f'f"{parts}"' if parts != path else f'"{path}"'
