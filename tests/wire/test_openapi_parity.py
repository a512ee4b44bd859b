"""For every route that OpenCode 1.1.34 has too, the operationId is the same: generated clients name their methods after it.

opencode_operations.json lists OpenCode's: method, path, operationId.
"""

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
METHODS = {"get", "post", "put", "patch", "delete"}

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

Operations = dict[tuple[str, str], str]


def nameless(path: str) -> str:
    """The path without the names of its parameters: `/session/{id}` and `/session/{sessionID}` are one route."""
    return re.sub(r"\{[^}]*\}", "{}", path)


def theirs() -> Operations:
    listed: list[dict[str, str]] = json.loads((Path(__file__).parent / "opencode_operations.json").read_text())
    return {(operation["method"], nameless(operation["path"])): operation["operationId"] for operation in listed}


def ours() -> Operations:
    paths: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "openapi.yaml").read_text())["paths"]
    return {
        (method.upper(), nameless(path)): operation["operationId"]
        for path, item in paths.items()
        for method, operation in item.items()
        if method in METHODS
    }


def test_shared_routes_have_opencodes_operation_ids() -> None:
    expected, actual = theirs(), ours()
    shared = expected.keys() & actual.keys()
    assert {route: actual[route] for route in shared} == {route: expected[route] for route in shared}


def test_no_other_route_takes_an_operation_id_of_opencode() -> None:
    expected, actual = theirs(), ours()
    assert {route: name for route, name in actual.items() if route not in expected and name in expected.values()} == {}


def test_operation_ids_are_unique() -> None:
    names = list(ours().values())
    assert sorted(set(names)) == sorted(names)


def test_the_routes_that_clients_need_are_there() -> None:
    assert NEEDED - set(ours().values()) == set()
