"""The API is that of OpenCode 1.1.34 and 1.18.33: what they have and this one does not is told in
docs/compatibility-descriptions.md, with a reason, line by line.

Where both have a route, the operationId is the same: generated clients name their methods after it.
"""

import json
import re
from copy import deepcopy
from typing import Any

import pytest
import yaml
from api_parity import DESCRIPTIONS, TESTS, Json, described, gaps, operations, rows_of

NEEDED = """
global.health global.event event.subscribe path.get project.list project.current vcs.get config.get config.providers
provider.list provider.auth auth.set app.agents app.skills command.list lsp.status formatter.status mcp.status
experimental.resource.list permission.list question.list session.list session.create session.status session.get session.update
session.delete session.children session.todo session.fork session.abort session.diff session.messages session.message
session.prompt session.prompt_async part.update part.delete
"""
"""The routes that OpenCode's clients cannot start or run a session without."""
PAGE = "compatibility-descriptions.md"


@pytest.fixture(scope="module", params=DESCRIPTIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def theirs(version: str) -> Json:
    return described(version)


@pytest.fixture(scope="module")
def ours() -> Json:
    return dict(yaml.load((TESTS.parent / "openapi.yaml").read_text(), yaml.CSafeLoader))


def names(api: Json) -> dict[tuple[str, str], str]:
    return {route: operation["operationId"] for route, operation in operations(api).items()}


def is_one_of(line: str, lines: str) -> bool:
    """`*` stands for any text."""
    return re.fullmatch(re.escape(lines).replace(r"\*", ".*"), line) is not None


def test_what_is_missing_and_nothing_else_is_documented_with_a_reason(version: str, theirs: Json, ours: Json) -> None:
    """What is sent and changes nothing has a table of its own: test_sent_fields.py."""
    documented, found = rows_of(PAGE, f"OpenCode {version}"), gaps(theirs, ours)
    told = {**documented, **rows_of(PAGE, "What is sent and changes nothing")}
    untold = [gap for gap in found if not any(is_one_of(gap, lines) for lines in told)]
    assert sorted(untold) == [], f"describe them as OpenCode does, or give each a row in {PAGE}, with the reason"
    here = [lines for lines in documented if not any(is_one_of(gap, lines) for gap in found)]
    assert here == [], f"these are here now: delete their rows from {PAGE}"
    assert all(len(reason) > 20 for reason in documented.values())


def references(schema: Any) -> set[str]:
    return set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(schema)))


def test_routes_lead_to_every_schema(theirs: Json) -> None:
    """So that comparing what routes take and answer compares them all."""
    schemas, found = theirs["components"]["schemas"], references(theirs["paths"])
    while new := {inner for name in found for inner in references(schemas[name])} - found:
        found |= new
    assert found == schemas.keys()


def test_shared_routes_have_opencodes_operation_ids_and_no_others(theirs: Json, ours: Json) -> None:
    expected, actual = names(theirs), names(ours)
    shared = expected.keys() & actual.keys()
    assert {route: actual[route] for route in shared} == {route: expected[route] for route in shared}
    assert {route: name for route, name in actual.items() if route not in expected and name in expected.values()} == {}
    assert sorted(set(actual.values())) == sorted(actual.values())
    assert set(NEEDED.split()) - set(actual.values()) == set()


def test_a_request_that_is_wrong_is_described_as_a_400_alone(ours: Json) -> None:
    """FastAPI would describe a 422, which no route sends."""
    described = {route: operation["responses"] for route, operation in operations(ours).items()}
    assert [route for route, responses in described.items() if "422" in responses] == []
    with_body = [route for route, operation in operations(ours).items() if "requestBody" in operation]
    assert with_body and [route for route in with_body if "400" not in described[route]] == []


SCHEMAS = "components schemas"
ORNULL = {"anyOf": [{"type": "string"}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("place", "change", "gap"),
    [
        ("paths /session/{sessionID}/todo", None, "GET /session/{sessionID}/todo"),
        ("paths /session/{sessionID} get responses 404", None, "GET /session/{sessionID} 404"),
        (f"{SCHEMAS} Session properties parentID", None, "Session.parentID"),
        (f"{SCHEMAS} Session required title", None, "Session.title: optional"),
        (f"{SCHEMAS} Todo properties priority", None, "Todo.priority"),
        (f"{SCHEMAS} RetryPart properties type", None, "Part (type=retry)"),
        (f"{SCHEMAS} CommandInput properties agent", None, "POST /session/{sessionID}/command body.agent"),
        (f"{SCHEMAS} Session properties title", {"type": "number"}, "Session.title: number"),
        (f"{SCHEMAS} Session properties title", ORNULL, "Session.title: null"),
        (f"{SCHEMAS} ToolPart properties state", {"type": "object"}, "ToolState (status=pending)"),
    ],
)
def test_what_is_taken_out_or_of_another_type_is_missed(theirs: Json, ours: Json, place: str, change: Any, gap: str) -> None:
    *way, last = place.split()
    copy = deepcopy(ours)
    inner: Any = copy
    for step in way:
        inner = inner[step]
    if change is not None:
        inner[last] = change
    elif isinstance(inner, list):
        inner.remove(last)
    else:
        del inner[last]
    assert gap in gaps(theirs, copy) - gaps(theirs, ours)
