"""What one API description has and another does not: route by route, then schema by schema, property by property.

A gap is a line of text:
    GET /pty                                    a route
    GET /session ?roots                         a query parameter
    GET /session 404                            an answer
    Session.share.url                           a property, under the name of the schema that it belongs to
    Part (type=retry)                           one of several shapes
    Session.version: optional                   a property that is always there elsewhere (or `required`, in what is sent)
    Todo.status: number, string                 types, or values, that are elsewhere too (in answers: that are here only)
`[]` stands for the items of a list, `{}` for the values of a map.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

Json = dict[str, Any]
Way = Literal["sent", "answered"]

TESTS = Path(__file__).parents[1]
DESCRIPTIONS = {"1.1.34": "opencode_api.json", "1.18.33": "opencode_api_1.18.33.json"}
"""By version of OpenCode: the one is that version's without its prose."""

METHODS = ("get", "post", "put", "patch", "delete")
SCALARS = ("string", "boolean", "number", "null")
DISCRIMINATORS = ("type", "role", "name", "status")
ANYTHING: Json = {}


@cache
def described(version: str) -> Json:
    return dict(json.loads((TESTS / "wire" / DESCRIPTIONS[version]).read_text()))


def rows_of(page: str, heading: str) -> dict[str, str]:
    """The first two columns of a table below a heading of one of the docs' pages."""
    text = (TESTS.parent / "docs" / page).read_text().partition(f"# {heading}\n")[2]
    return dict(re.findall(r"^\| `(.+?)` \| (.+?) \|$", re.split(r"\n##", text)[0], re.MULTILINE))


def nameless(path: str) -> str:
    """Without the names of its parameters: `/session/{id}` and `/session/{sessionID}` are one route, `/{path}` and `/*` too."""
    return re.sub(r"\{[^}]*\}|\*$", "{}", path)


def operations(api: Json) -> dict[tuple[str, str], Json]:
    """By method and nameless path; each has its `path` beside what the description says."""
    return {
        (method.upper(), nameless(path)): {**item[method], "path": path}
        for path, item in api["paths"].items()
        for method in METHODS
        if method in item
    }


def gaps(theirs: Json, ours: Json) -> set[str]:
    comparison = Comparison(theirs, ours)
    comparison.routes()
    return comparison.found


@dataclass
class Comparison:
    theirs: Json
    ours: Json
    found: set[str] = field(default_factory=set)
    _seen: set[tuple[str, str, Way]] = field(default_factory=set)

    def routes(self) -> None:
        ours = operations(self.ours)
        for key, operation in operations(self.theirs).items():
            route = f"{key[0]} {operation['path']}"
            if key in ours:
                self._route(route, operation, ours[key])
            else:
                self.found.add(route)

    def _route(self, route: str, theirs: Json, ours: Json) -> None:
        for name in query_names(theirs) - query_names(ours):
            self.found.add(f"{route} ?{name}")
        if "requestBody" in theirs:
            self._compare(f"{route} body", content(theirs["requestBody"]), content(ours.get("requestBody", {})), "sent")
        for status, answer in theirs["responses"].items():
            if status not in ours["responses"]:
                self.found.add(f"{route} {status}")
            else:
                self._compare(f"{route} {status}", content(answer), content(ours["responses"][status]), "answered")

    def _compare(self, label: str, theirs: Json, ours: Json, way: Way) -> None:
        name = theirs["$ref"].rpartition("/")[2] if "$ref" in theirs else label
        if self._is_known(name, ours.get("$ref"), way):
            return
        expected, actual = shapes(self.theirs, theirs), shapes(self.ours, ours)
        if ANYTHING in expected or ANYTHING in actual:
            return
        self._scalars(name, expected, actual, way)
        for shape in expected:
            if shape.get("type") in ("array", "object") and not self._shape(name, shape, actual, way, len(expected) > 1):
                self.found.add(f"{name} ({discriminator(shape) or shape['type']})" if len(expected) > 1 else label)

    def _is_known(self, name: str, reference: str | None, way: Way) -> bool:
        """Two named schemas are compared once."""
        if reference is None:
            return False
        pair = (name, reference, way)
        seen = pair in self._seen
        self._seen.add(pair)
        return seen

    def _scalars(self, label: str, expected: list[Json], actual: list[Json], way: Way) -> None:
        if way == "sent":
            expected, actual = actual, expected
        extra = values(actual) - values(expected)
        if extra:
            self.found.add(f"{label}: {', '.join(sorted(extra))}")

    def _shape(self, label: str, shape: Json, actual: list[Json], way: Way, one_of_several: bool) -> bool:
        """Whether there is one of `actual` to compare a list or an object with."""
        same_type = [other for other in actual if other.get("type") == shape["type"]]
        if shape["type"] == "array" and same_type:
            self._compare(f"{label}[]", shape.get("items", ANYTHING), same_type[0].get("items", ANYTHING), way)
            return True
        mark, same = discriminator(shape), best_match(shape, same_type)
        if same is not None:
            self._object(f"{label} ({mark})" if one_of_several and mark else label, shape, same, way)
        return same is not None

    def _object(self, label: str, theirs: Json, ours: Json, way: Way) -> None:
        open_here = ours.get("additionalProperties") not in (None, False)
        for name, schema in theirs.get("properties", {}).items():
            if name in ours.get("properties", {}):
                self._compare(f"{label}.{name}", schema, ours["properties"][name], way)
                self._presence(f"{label}.{name}", name in required(theirs), name in required(ours), way)
            elif not open_here:
                self.found.add(f"{label}.{name}")
        if isinstance(values_of := theirs.get("additionalProperties"), dict):
            of_ours = ours.get("additionalProperties")
            if of_ours in (None, False):
                self.found.add(f"{label}{{}}")
            elif isinstance(of_ours, dict):
                self._compare(f"{label}{{}}", values_of, of_ours, way)

    def _presence(self, label: str, theirs: bool, ours: bool, way: Way) -> None:
        if way == "answered" and theirs and not ours:
            self.found.add(f"{label}: optional")
        if way == "sent" and ours and not theirs:
            self.found.add(f"{label}: required")


def query_names(operation: Json) -> set[str]:
    return {parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "query"}


def content(holder: Json) -> Json:
    """The schema of a body, whatever its media type."""
    return next((dict(body.get("schema", {})) for body in holder.get("content", {}).values()), ANYTHING)


def shapes(api: Json, schema: Json) -> list[Json]:
    """The alternatives of a schema, references and unions opened."""
    if "$ref" in schema:
        return shapes(api, api["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return [shape for alternative in schema[key] for shape in shapes(api, alternative)]
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": name} for name in schema["type"]]
    if not {"type", "const", "enum", "properties"} & schema.keys():
        return [ANYTHING]
    return [{"type": "object", **schema} if "properties" in schema else schema]


def values(alternatives: list[Json]) -> set[str]:
    """The types of scalars, and their values where only some are allowed."""
    return {value for shape in alternatives for value in scalar(shape)}


def scalar(shape: Json) -> Iterator[str]:
    kind = shape.get("type", "string").replace("integer", "number")
    if "const" in shape:
        yield repr(shape["const"])
    elif "enum" in shape:
        yield from map(repr, shape["enum"])
    elif kind in SCALARS:
        yield kind


def discriminator(shape: Json) -> str | None:
    """What tells an object from the others of its union, such as `type=text`."""
    for name in DISCRIMINATORS:
        allowed = list(values([shape.get("properties", {}).get(name, ANYTHING)]))
        if len(allowed) == 1 and allowed[0] not in SCALARS:
            return f"{name}={allowed[0][1:-1]}"
    return None


def best_match(shape: Json, others: list[Json]) -> Json | None:
    """The one with the same discriminator; without one, the one that has most of the properties, better also without one."""
    mark = discriminator(shape)
    if mark is not None:
        return next((other for other in others if discriminator(other) == mark), None)
    names = shape.get("properties", {}).keys()
    return max(
        others, key=lambda other: (discriminator(other) is None, len(names & other.get("properties", {}).keys())), default=None
    )


def required(shape: Json) -> list[str]:
    return list(shape.get("required", []))
