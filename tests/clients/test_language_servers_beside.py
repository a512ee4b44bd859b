"""OpenCode 1.1.34 and this server with the same language server and formatter: what each tells of them.

The long form, with OPENSESSION_LONG=1: npm installs OpenCode's program.
"""

import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from beside import Side, comparable, differences, opencode, this_server
from long_form import LONG
from model_server import ModelServer, Pause
from opencode_program import OLDER
from running_server import RunningServer

pytestmark = pytest.mark.skipif(not LONG, reason="OpenCode's program is needed: OPENSESSION_LONG=1")

SUPPORT = Path(__file__).parents[1] / "support"
PROGRAMS = {
    "lsp": {"fake": {"command": [sys.executable, str(SUPPORT / "fake_language_server.py")], "extensions": [".fake"]}},
    "formatter": {
        "upper": {"command": [sys.executable, str(SUPPORT / "fake_formatter.py"), "upper", "$FILE"], "extensions": [".txt"]},
        "ruff": {"disabled": True},
        "prettier": {},
        "dart": {"command": ["true", "$FILE"], "extensions": [".dart"]},
    },
}
KEYS = ("status", "title", "output", "metadata", "error")


async def facts_of(server: RunningServer, model: ModelServer) -> dict[str, Any]:
    place = server.workspace / "opencode.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), **PROGRAMS}))
    async with httpx2.AsyncClient(base_url=server.base, timeout=120) as http:
        side = Side(http, server.workspace.resolve(), model)
        before = {"lsp": await side.get("/lsp"), "formatter": await side.get("/formatter")}
        session = await side.session()
        side.model.play(*([Pause(0.4), call] for call in calls(side)), ["Done."])
        await side.prompt(session)
        parts = [part for message in await side.get(f"/session/{session}/message") for part in message["parts"]]
        states = [{key: part["state"].get(key) for key in KEYS} for part in parts if part["type"] == "tool"]
        return {"before": comparable(before, side.workspace), "states": comparable(states, side.workspace)} | {
            "after": await side.get("/lsp")
        }


def calls(side: Side) -> list[tuple[str, dict[str, Any]]]:
    return [
        ("write", {"filePath": side.file("x.fake"), "content": "one\n wrong\n" * 30}),
        ("write", {"filePath": side.file("x.fake"), "content": "one\n wrong\n"}),
        ("edit", {"filePath": side.file("x.fake"), "oldString": "wrong", "newString": "right"}),
        ("edit", {"filePath": side.file("x.fake"), "oldString": "one", "newString": "wrong\nwrong"}),
        ("write", {"filePath": side.file("b.txt"), "content": "hello\n"}),
        ("edit", {"filePath": side.file("b.txt"), "oldString": "HELLO", "newString": "more"}),
    ]


def with_errors_alone(states: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What docs/compatibility.md says of the metadata: no warnings, at most 20 errors, no file without."""
    for state in states:
        diagnostics = (state["metadata"] or {}).get("diagnostics", {})
        for path, found in list(diagnostics.items()):
            diagnostics[path] = [each for each in found if each["severity"] == 1][:20]
            if not diagnostics[path]:
                del diagnostics[path]
    return states


async def test_what_is_told_is_what_opencode_tells(node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with opencode(node_modules, tmp_path_factory, OLDER) as server:
        theirs = await facts_of(*server)
    with this_server(tmp_path_factory) as server:
        ours = await facts_of(*server)
    formatters = [{each["name"]: each for each in side["before"].pop("formatter")} for side in (theirs, ours)]
    assert list(differences(theirs["before"], ours["before"])) == []
    assert theirs["after"] == ours["after"]
    told = [*map(with_errors_alone, (theirs["states"], ours["states"]))]
    assert [str(each) for each in differences(*told)] == []
    for name, each in formatters[0].items():
        assert set(each["extensions"]) <= set(formatters[1][name]["extensions"]), name
        assert name not in ("upper", "prettier", "dart", "oxfmt") or each == formatters[1][name]
    assert {"upper", "prettier", "dart", "oxfmt"} <= formatters[0].keys()
