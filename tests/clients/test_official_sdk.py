"""The official SDK, both of its surfaces, against a real server: create, subscribe, prompt, read, abort, fork, delete."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer, serving, this_checkout

ANSWER = "Hello there, friend."
SCRIPT = {"turns": [[{"text": ANSWER, "chunks": 5}], [{"text": "and so on " * 500, "chunks": 500, "delay": 0.05}]]}
"""What the model answers: a short turn, then one so slow that only an abort ends it in time."""


@pytest.fixture(scope="module", params=["v1", "v2"])
def surface(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def server(surface: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    directory = tmp_path_factory.mktemp(surface)
    script = directory / "script.json"
    script.write_text(json.dumps(SCRIPT))
    command, environment = this_checkout()
    with serving(command, directory, {**environment, "OPENSESSION_SCRIPT": str(script)}) as running:
        yield running


@pytest.fixture(scope="module")
def seen(surface: str, server: RunningServer, node_modules: Path) -> dict[str, Any]:
    """What official_sdk.mjs saw through one of the SDK's surfaces."""
    result = subprocess.run(
        ["node", "official_sdk.mjs", server.base, surface],
        cwd=node_modules,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert result.returncode == 0, result.stderr
    return dict(json.loads(result.stdout))


def test_it_creates_and_lists_a_session(seen: dict[str, Any], server: RunningServer) -> None:
    session = seen["turn"]["session"]
    assert re.fullmatch(r"ses_[0-9a-f]{12}[0-9A-Za-z]{14}", session["id"])
    assert session["title"] == "from the SDK"
    assert Path(session["directory"]) == server.workspace
    assert seen["turn"]["listed"]


def test_it_prompts_and_reads_the_answer(seen: dict[str, Any]) -> None:
    turn = seen["turn"]
    assert turn["info"]["role"] == "assistant"
    assert turn["info"]["parentID"] == turn["userMessage"]
    assert turn["info"]["finish"] == "stop"
    assert "error" not in turn["info"]
    assert turn["text"] == ANSWER
    assert turn["storedText"] == turn["text"]
    assert turn["shape"] == [["user", "text"], ["assistant", "step-start", "text", "step-finish"]]


def test_it_sees_the_answer_stream(seen: dict[str, Any]) -> None:
    turn = seen["turn"]
    assert "".join(turn["deltas"]) == turn["text"]
    assert turn["events"][0] == "session.created"
    assert turn["events"][-1] == "session.idle"
    assert {"session.updated", "session.status", "message.updated", "message.part.updated"} <= set(turn["events"])


def test_it_aborts_a_turn(seen: dict[str, Any]) -> None:
    abort = seen["abort"]
    assert abort["accepted"] == 204
    assert abort["busy"] == "busy"
    assert abort["aborted"] is True
    assert abort["idle"]
    assert abort["error"] == "MessageAbortedError"
    assert abort["completed"]
    assert abort["text"].startswith("and so on")


def test_it_forks(seen: dict[str, Any]) -> None:
    fork = seen["fork"]
    assert fork["title"] == "from the SDK (fork #1)"
    assert fork["shape"] == seen["turn"]["shape"]
    assert fork["owned"]
    assert fork["beforeFirst"] == 0


def test_it_deletes(seen: dict[str, Any]) -> None:
    assert seen["remove"] == {"deleted": True, "status": 404, "error": "NotFoundError"}
