"""`opensession export` and `import`: by themselves, beside a server of the same data directory, and attached to one."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer, new_workspace
from shell_commands import Shell

TITLE = "Grüße, 世界"
PROMPT = {"model": {"providerID": "scripted", "modelID": "rules"}, "parts": [{"type": "text", "text": "read a.txt"}]}
PRIVATE = {"OPENSESSION_ALLOW_PRIVATE_ADDRESSES": "true"}


@pytest.fixture
def beside(server: RunningServer, tmp_path: Path) -> Shell:
    return Shell(server.workspace, tmp_path, server.data)


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    """No server has its data directory."""
    (tmp_path / "home").mkdir()
    return Shell(new_workspace(tmp_path / "alone"), tmp_path / "home", tmp_path / "data")


@pytest.fixture
def session(call: Callable[..., Any]) -> str:
    """Of a conversation on the server."""
    return conversation(call)


def conversation(call: Callable[..., Any], **fields: Any) -> str:
    session: str = call("POST", "/session", {"title": TITLE, **fields})["id"]
    call("POST", f"/session/{session}/message", PROMPT)
    return session


def exported(shell: Shell, session: str, *options: str) -> dict[str, Any]:
    return json.loads(shell.done("export", session, *options).stdout)


def family(document: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    """A session and its child, as they are where they were imported."""
    (child,) = document["children"]
    return [{**each, "info": {**each["info"], **fields}, "children": []} for each in (document, child)]


def test_a_session_leaves_a_running_server_and_comes_to_a_directory_without_one(
    call: Callable[..., Any], session: str, beside: Shell, alone: Shell
) -> None:
    conversation(call, parentID=session)
    file = alone.directory / "session.json"
    file.write_text("as it was")
    assert beside.done("export", session, "--children", "--output", str(file)).stdout == ""
    document = json.loads(file.read_text())
    assert document == call("GET", f"/session/{session}/export?children=true")
    assert alone.done("import", "session.json").stdout == f"Imported session: {session} and 1 below it\n"
    kept = exported(alone, session, "--children")
    place = {"directory": str(alone.directory), "projectID": kept["info"]["projectID"]}
    assert family(kept) == family(document, **place)
    assert "Delete it first" in alone.done("import", "session.json", code=1).stderr
    copy = alone.done("import", "session.json", "--ids", "new").stdout.split()[2]
    assert copy != session and len(exported(alone, copy)["messages"]) == len(document["messages"])


def test_what_is_imported_beside_a_running_server_it_shows_and_goes_on_with(
    call: Callable[..., Any], session: str, beside: Shell
) -> None:
    document = call("GET", f"/session/{session}/export")
    copy = beside.done("import", "-", "--ids", "new", piped=json.dumps(document)).stdout.split()[2]
    assert copy in [each["id"] for each in call("GET", "/session")]
    shown = call("GET", f"/session/{copy}/message")
    assert [part.get("text") for part in shown[0]["parts"]] == [part.get("text") for part in document["messages"][0]["parts"]]
    assert call("POST", f"/session/{copy}/message", PROMPT)["info"]["finish"] == "stop"


def test_a_server_elsewhere_is_named_and_an_address_is_read_where_settings_allow_it(
    call: Callable[..., Any], server: RunningServer, session: str, alone: Shell
) -> None:
    document = alone.done("export", session, "--attach", server.base).stdout
    imported = alone.done("import", "-", "--ids", "new", "--attach", server.base, piped=document)
    assert imported.stdout.split()[2] in [each["id"] for each in call("GET", "/session")]
    assert "cannot be reached" in alone.done("export", session, "--attach", "http://127.0.0.1:1", code=1).stderr
    address = f"{server.base}/session/{session}/export"
    refused = alone.done("import", address, code=1).stderr
    assert "not a public address" in refused and "OPENSESSION_ALLOW_PRIVATE_ADDRESSES" in refused
    small = alone.done("import", address, code=1, OPENSESSION_MAX_IMPORT_BYTES="100", **PRIVATE)
    assert "is larger than" in small.stderr
    link = call("POST", f"/session/{session}/share", {})["share"]["url"]
    visited = call("GET", f"{link.removeprefix(server.base)}/session")
    alone.done("import", link, **PRIVATE)
    shared = exported(alone, session)
    assert shared["messages"] == visited["messages"] and shared["info"]["title"] == TITLE and "share" not in shared["info"]
    alone.done("session", "delete", session)
    assert alone.done("import", address, **PRIVATE).stdout == f"Imported session: {session}\n"
    assert exported(alone, session)["messages"] == call("GET", f"/session/{session}/export")["messages"]


def test_what_cannot_be_done_is_a_sentence_and_1_and_leaves_no_file(session: str, beside: Shell, alone: Shell) -> None:
    assert alone.done("export", "ses_none", "--output", "x.json", code=1).stderr == "Session not found: ses_none\n"
    assert "none.json cannot be read: No such file" in alone.done("import", "none.json", code=1).stderr
    assert alone.done("import", "-", piped='{"info": {}, "messages": []}', code=1).stderr.startswith("info.id: ")
    assert "This is no JSON" in alone.done("import", "-", piped="{", code=1).stderr
    alone.done("import", "-", "--ids", "other", code=2)
    assert list(alone.directory.glob("*.json")) == []
    folder = beside.home / "folder"
    folder.mkdir()
    assert "cannot be written" in beside.done("export", session, "--output", str(folder), code=1).stderr
    assert list(beside.home.glob(".folder*")) == []
    assert beside.done("export", session, "--format", "markdown").stdout.startswith(f"# {TITLE}\n")
