"""`opencode import` takes what is exported here; what `opencode export` writes is imported here, message by message the same.

In the short form the newest version takes ours and gives it back; OPENSESSION_LONG=1 is all of it, with both versions.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from long_form import LONG
from model_server import Reasoning, model_server
from opencode_program import NEWER, OFFLINE, VERSIONS, installed, offline_home
from running_server import clean_environment, new_workspace

SCRIPTED = {"providerID": "scripted", "modelID": "rules"}
IMAGE = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="module", params=VERSIONS if LONG else [NEWER])
def program(request: pytest.FixtureRequest, node_modules: Path) -> Path:
    return installed(node_modules, request.param)


@pytest.fixture(scope="module")
def home(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a program that has started once: it empties its cache then."""
    directory = tmp_path_factory.mktemp("home")
    opencode(program, directory, new_workspace(tmp_path_factory.mktemp("first") / "start"), "session", "list")
    return directory


def opencode(program: Path, home: Path, workspace: Path, *arguments: str) -> str:
    """What it printed."""
    environment = clean_environment(offline_home(home), PWD=str(workspace), **OFFLINE)
    command, streams = [str(program), *arguments], {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True}
    done: Any = subprocess.run(command, cwd=workspace, env=environment, timeout=180, **streams)
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


def conversation(call: Callable[..., Any]) -> str:
    """A fork of a session with tools, images, other scripts and a compaction, which went on and has a revert in force; its id."""
    rules = [{"permission": "*", "pattern": "*", "action": "allow"}]
    session = call("POST", "/session", {"title": "Grüße, 世界 👋", "permission": rules})
    path = f"/session/{session['id']}"
    for text in ("Grüße, 世界 👋", "write b.txt: neu, 新", "read a.txt", "todo tidy, sleep"):
        parts = [{"type": "text", "text": text}, {"type": "file", "mime": "image/png", "filename": "ö.png", "url": IMAGE}]
        call("POST", f"{path}/message", {"parts": parts})
    call("POST", f"{path}/summarize", SCRIPTED)
    fork = call("POST", f"{path}/fork", {})
    path = f"/session/{fork['id']}"
    call("POST", f"{path}/message", {"parts": [{"type": "text", "text": "write c.txt: other"}]})
    prompts = [each for each in call("GET", f"{path}/message") if each["info"]["role"] == "user"]
    call("POST", f"{path}/revert", {"messageID": prompts[-1]["info"]["id"]})
    return str(fork["id"])


NOT_KEPT = {"before", "after", "patch", "notReverted", "total"}
"""Fields that one of the programs does not know; of a diff, `status` too."""


def essence(value: Any) -> Any:
    """Without what is not kept."""
    if isinstance(value, list):
        return [essence(each) for each in value]
    if isinstance(value, dict):
        without = NOT_KEPT | ({"status"} if "additions" in value else set())
        return {name: essence(each) for name, each in value.items() if name not in without}
    return value


def test_what_is_exported_here_goes_to_opencode_and_back(
    program: Path, home: Path, call: Callable[..., Any], tmp_path: Path
) -> None:
    session_id = conversation(call)
    document = call("GET", f"/session/{session_id}/export?children=true")
    types = {part["type"] for message in document["messages"] for part in message["parts"]}
    assert types >= {"text", "file", "tool", "step-start", "step-finish", "patch", "compaction"}
    assert document["info"]["revert"]
    file, workspace = tmp_path / "session.json", new_workspace(tmp_path / "theirs")
    file.write_text(json.dumps(document, ensure_ascii=False))
    assert f"Imported session: {session_id}" in opencode(program, home, workspace, "import", str(file))
    theirs = json.loads(opencode(program, home, workspace, "export", session_id))
    assert essence(theirs["messages"]) == essence(document["messages"])
    call("DELETE", f"/session/{session_id}")
    imported = call("POST", "/session/import", theirs)
    assert imported["info"]["title"] == document["info"]["title"]
    assert imported["info"]["revert"]["messageID"] == document["info"]["revert"]["messageID"]
    assert essence(call("GET", f"/session/{session_id}/message")) == essence(document["messages"])


@pytest.mark.skipif(not LONG, reason="opencode's turns take a minute of CPU: OPENSESSION_LONG=1")
def test_what_opencode_exports_is_imported(program: Path, home: Path, call: Callable[..., Any], tmp_path: Path) -> None:
    workspace = new_workspace(tmp_path / "theirs")
    delegated = {"description": "look", "prompt": "Look around", "subagent_type": "general"}
    with model_server() as model:
        (workspace / "opencode.json").write_text(json.dumps({**model.config(), "share": "disabled"}))
        model.play(
            [Reasoning("Hm, 思考."), ("write", {"filePath": str(workspace / "b.txt"), "content": "neu, 新\n"})],
            ["Grüße, 世界 👋"],
            [("task", delegated), ("read", {"filePath": str(workspace / "none.txt")})],
            ["Looked."],
            ["Done."],
        )
        opencode(program, home, workspace, "run", "--model", "fake/main", "Write b.txt, 请")
        opencode(program, home, workspace, "run", "--model", "fake/main", "--continue", "Look around")
    listed = opencode(program, home, workspace, "session", "list").splitlines()
    [session_id] = {line.split()[0] for line in listed if "ses_" in line}
    theirs = json.loads(opencode(program, home, workspace, "export", session_id))
    types = {part["type"] for message in theirs["messages"] for part in message["parts"]}
    assert types >= {"text", "reasoning", "tool", "step-start", "step-finish"} and len(theirs["messages"]) > 4
    call("POST", "/session/import", theirs)
    assert essence(call("GET", f"/session/{session_id}/message")) == essence(theirs["messages"])
    prompt = {"model": SCRIPTED, "parts": [{"type": "text", "text": "read a.txt"}]}
    assert call("POST", f"/session/{session_id}/message", prompt)["info"]["finish"] == "stop"
