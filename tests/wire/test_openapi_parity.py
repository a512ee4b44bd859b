"""The API is that of OpenCode 1.1.34 and 1.18.33: what they have and this one does not is told in
docs/compatibility-descriptions.md, with a reason, line by line.

opencode_api.json is the API of 1.1.34 without its prose: routes, parameters, schemas; the other file is that of 1.18.33. Where
both have a route, the operationId is the same: generated clients name their methods after it.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_parity import Json, gaps, operations

ROOT = Path(__file__).parents[2]

# The routes that OpenCode's clients cannot start or run a session without.
NEEDED = {
    "global.health",
    "global.event",
    "event.subscribe",
    "path.get",
    "project.list",
    "project.current",
    "vcs.get",
    "config.get",
    "config.providers",
    "provider.list",
    "provider.auth",
    "auth.set",
    "app.agents",
    "app.skills",
    "command.list",
    "lsp.status",
    "formatter.status",
    "mcp.status",
    "experimental.resource.list",
    "permission.list",
    "question.list",
    "session.list",
    "session.create",
    "session.status",
    "session.get",
    "session.update",
    "session.delete",
    "session.children",
    "session.todo",
    "session.fork",
    "session.abort",
    "session.diff",
    "session.messages",
    "session.message",
    "session.prompt",
    "session.prompt_async",
    "part.update",
    "part.delete",
}


PAGE = ROOT / "docs" / "compatibility-descriptions.md"
DESCRIPTIONS = {"1.1.34": "opencode_api.json", "1.18.33": "opencode_api_1.18.33.json"}
"""By version; a section of the page says what of each is not here."""


@pytest.fixture(scope="module", params=DESCRIPTIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def theirs(version: str) -> Json:
    return dict(json.loads((Path(__file__).parent / DESCRIPTIONS[version]).read_text()))


@pytest.fixture(scope="module")
def ours() -> Json:
    return dict(yaml.load((ROOT / "openapi.yaml").read_text(), yaml.CSafeLoader))


@pytest.fixture(scope="module")
def documented(version: str) -> dict[str, str]:
    """What the page says is not here, and why; `*` stands for any text."""
    return rows_of(f"OpenCode {version}")


def rows_of(heading: str) -> dict[str, str]:
    text = PAGE.read_text().partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(.+?)` \| (.+?) \|$", text, re.MULTILINE))


def names(api: Json) -> dict[tuple[str, str], str]:
    return {route: operation["operationId"] for route, operation in operations(api).items()}


def is_one_of(line: str, lines: str) -> bool:
    return re.fullmatch(re.escape(lines).replace(r"\*", ".*"), line) is not None


def test_what_is_missing_is_documented_with_a_reason(theirs: Json, ours: Json, documented: dict[str, str]) -> None:
    """What is sent and changes nothing has a table of its own: test_sent_fields.py."""
    told = {**documented, **rows_of("What is sent and changes nothing")}
    untold = {gap for gap in gaps(theirs, ours) if not any(is_one_of(gap, lines) for lines in told)}
    assert sorted(untold) == [], f"describe them as OpenCode does, or give each a row in {PAGE.name}, with the reason"
    assert all(len(reason) > 20 for reason in documented.values())


def test_what_is_documented_as_missing_is_missing(theirs: Json, ours: Json, documented: dict[str, str]) -> None:
    found = gaps(theirs, ours)
    here = [lines for lines in documented if not any(is_one_of(gap, lines) for gap in found)]
    assert here == [], f"these are here now: delete their rows from {PAGE.name}"


def references(schema: Any) -> set[str]:
    return set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(schema)))


def test_routes_lead_to_every_schema(theirs: Json) -> None:
    """So that comparing what routes take and answer compares them all."""
    schemas, found = theirs["components"]["schemas"], references(theirs["paths"])
    while new := {inner for name in found for inner in references(schemas[name])} - found:
        found |= new
    assert found == schemas.keys()


def test_shared_routes_have_opencodes_operation_ids(theirs: Json, ours: Json) -> None:
    expected, actual = names(theirs), names(ours)
    shared = expected.keys() & actual.keys()
    assert {route: actual[route] for route in shared} == {route: expected[route] for route in shared}


def test_no_other_route_takes_an_operation_id_of_opencode(theirs: Json, ours: Json) -> None:
    expected, actual = names(theirs), names(ours)
    assert {route: name for route, name in actual.items() if route not in expected and name in expected.values()} == {}


def test_operation_ids_are_unique(ours: Json) -> None:
    found = list(names(ours).values())
    assert sorted(set(found)) == sorted(found)


def test_the_routes_that_clients_need_are_there(ours: Json) -> None:
    assert NEEDED - set(names(ours).values()) == set()


def changed(ours: Json, *path: str) -> Json:
    """`ours` without what `path` leads to."""
    copy: Json = json.loads(json.dumps(ours))
    *way, last = path
    inner = copy
    for step in way:
        inner = inner[step]
    if isinstance(inner, list):
        inner.remove(last)
    else:
        del inner[last]
    return copy


@pytest.mark.parametrize(
    ("path", "gap"),
    [
        (("paths", "/session/{sessionID}/todo"), "GET /session/{sessionID}/todo"),
        (("paths", "/session/{sessionID}", "get", "responses", "404"), "GET /session/{sessionID} 404"),
        (("components", "schemas", "Session", "properties", "parentID"), "Session.parentID"),
        (("components", "schemas", "Session", "required", "title"), "Session.title: optional"),
        (("components", "schemas", "Todo", "properties", "priority"), "Todo.priority"),
        (("components", "schemas", "RetryPart", "properties", "type"), "Part (type=retry)"),
        (("components", "schemas", "CommandInput", "properties", "agent"), "POST /session/{sessionID}/command body.agent"),
    ],
)
def test_what_is_taken_out_is_missed(theirs: Json, ours: Json, path: tuple[str, ...], gap: str) -> None:
    assert gap in gaps(theirs, changed(ours, *path)) - gaps(theirs, ours)


@pytest.mark.parametrize(
    ("path", "change", "gap"),
    [
        (("Session", "properties", "title"), {"type": "number"}, "Session.title: number"),
        (("Session", "properties", "title"), {"anyOf": [{"type": "string"}, {"type": "null"}]}, "Session.title: null"),
        (("ToolPart", "properties", "state"), {"type": "object"}, "ToolState (status=pending)"),
    ],
)
def test_another_type_is_seen(theirs: Json, ours: Json, path: tuple[str, ...], change: Any, gap: str) -> None:
    copy: Json = json.loads(json.dumps(ours))
    inner = copy["components"]["schemas"]
    for step in path:
        inner = inner[step]
    inner.clear()
    inner.update(change)
    assert gap in gaps(theirs, copy) - gaps(theirs, ours)


def test_a_request_that_is_wrong_is_described_as_a_400_alone(ours: Json) -> None:
    """FastAPI would describe a 422, which no route sends."""
    described = {route: operation["responses"] for route, operation in operations(ours).items()}
    assert [route for route, responses in described.items() if "422" in responses] == []
    with_body = [route for route, operation in operations(ours).items() if "requestBody" in operation]
    assert with_body and [route for route in with_body if "400" not in described[route]] == []
