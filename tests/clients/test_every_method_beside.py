"""Every method of OpenCode's newest SDK on OpenCode 1.18.33 and on this server, with the same model: statuses and properties.

The long form, with OPENSESSION_LONG=1. What methods about sessions answer is compared value by value in test_beside_opencode.py.
"""

import json
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from beside import json_types, opencode, this_server
from long_form import LONG
from model_server import ModelServer
from running_server import RunningServer

pytestmark = pytest.mark.skipif(not LONG, reason="OpenCode takes a minute of CPU: OPENSESSION_LONG=1")

Answers = dict[str, dict[str, Any]]
ENDLESS = ("event.subscribe", "global.event", "v2.event.subscribe", "v2.session.events", "tui.control.next")
"""Streams, and what OpenCode never answers."""

_CLEAR = "OpenCode answers what cannot be done with an internal error, or as if it were done"
_OAUTH = "providers have API keys here, none is signed in to"
_TICKET = "a ticket needs no header of OpenCode's own page here"
_SOCKET = "426 says that a WebSocket is wanted"

OTHER_STATUS = {
    "provider.oauth.authorize": _OAUTH,
    "experimental.workspace.remove": _CLEAR,
    "experimental.workspace.warp": _CLEAR,
    "global.upgrade": "that the server was not updated is an answer, and no bad request",
    "session.share": _CLEAR,
    "mcp.auth.callback": _CLEAR,
    "pty.connectToken": _TICKET,
    "v2.pty.connectToken": _TICKET,
    "pty.connect": _SOCKET,
    "v2.pty.connect": _SOCKET,
    "v2.integration.connect.oauth": _OAUTH,
    "v2.integration.attempt.status": _OAUTH,
    "v2.integration.attempt.complete": _OAUTH,
    "v2.fs.read": _CLEAR,
    "v2.session.wait": "works here",
    "v2.session.compact": "works here",
}
"""By method, why its status is another one."""

OTHER_PROPERTIES = {
    "*config.* .$schema: string": "is in a configuration that names it",
    "*skill* *": "OpenCode has a skill about itself",
    "command.list *: null": "what a command does not say is left out",
    "tool.list *": "tools have the parameters of 1.1, described in our words",
    "experimental.workspace.adapter.list *": "there are no workspaces",
    "session.create *": "the answer that creates a session has the keys of 1.1",
    "session.* *.tokens.total: number": "the sum of the others, which OpenCode 1.1 does not send",
    "session.messages *.summary*": "a prompt that changed no file has no `summary.diffs`",
    "v2.integration.* *": "OpenCode's own provider, and signing in to others, are not here",
}
"""By method and place, what OpenCode's answers have and these have not, and why."""


@pytest.fixture(scope="module")
def answered(node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Answers, Answers]:
    """By method the last answer of OpenCode and of this server."""
    with opencode(node_modules, tmp_path_factory) as server:
        theirs = called(server, node_modules)
    with this_server(tmp_path_factory) as server:
        return theirs, called(server, node_modules)


def called(server: tuple[RunningServer, ModelServer], node_modules: Path) -> Answers:
    running, model = server
    command = ["node", "next_sdk.mjs", running.base, sys.executable, model.url.removesuffix("/v1")]
    result = subprocess.run(command, cwd=node_modules, capture_output=True, text=True, timeout=400)
    assert result.returncode == 0, result.stderr
    seen = json.loads(result.stdout)
    assert seen["stopped"] == {}
    return {answer["method"]: answer for answer in seen["answers"] if answer["method"] not in ENDLESS}


def test_every_method_has_opencodes_status(answered: tuple[Answers, Answers]) -> None:
    theirs, ours = answered
    assert len(theirs) > 180 and theirs.keys() == ours.keys()
    other = {method: (theirs[method]["status"], ours[method]["status"]) for method in theirs}
    assert {method: pair for method, pair in other.items() if pair[0] != pair[1] and method not in OTHER_STATUS} == {}
    assert [method for method in OTHER_STATUS if other[method][0] == other[method][1]] == [], "these are alike now"


def test_every_answer_has_opencodes_properties(answered: tuple[Answers, Answers]) -> None:
    theirs, ours = answered
    missing = [
        f"{method} {place}: {kind}"
        for method in theirs
        if theirs[method]["status"] == ours[method]["status"] < 300
        for place, kind in json_types(theirs[method].get("data")).items() - json_types(ours[method].get("data")).items()
    ]
    assert sorted(each for each in missing if not any(fnmatch(each, known) for known in OTHER_PROPERTIES)) == []
    assert [known for known in OTHER_PROPERTIES if not any(fnmatch(each, known) for each in missing)] == [], "these are here now"
