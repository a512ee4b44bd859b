"""`opensession export` and `import`: by themselves, beside a server of the same data directory, and attached to one."""

import json
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from running_server import RunningServer, clean_environment, new_workspace, this_checkout

SECONDS = 180
PRIVATE = {"OPENSESSION_ALLOW_PRIVATE_ADDRESSES": "true"}


@dataclass
class Shell:
    """Where commands run."""

    workspace: Path
    data: Path
    home: Path

    def run(self, *arguments: str, piped: bytes = b"", code: int = 0, **settings: str) -> subprocess.CompletedProcess[str]:
        environment = clean_environment(self.home, OPENSESSION_DATA_DIR=str(self.data), **this_checkout()[1], **settings)
        command = [sys.executable, "-m", "app.cli", *arguments]
        done = subprocess.run(command, cwd=self.workspace, env=environment, input=piped, capture_output=True, timeout=SECONDS)
        out, err = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == code and "Traceback" not in err, (done.returncode, out, err)
        return subprocess.CompletedProcess(command, code, out, err)

    def export(self, session_id: str, *options: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("export", session_id, *options).stdout)
        return found


@pytest.fixture
def beside(server: RunningServer, tmp_path: Path) -> Shell:
    return Shell(server.workspace, server.data, tmp_path)


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    """No server has its data directory."""
    (tmp_path / "home").mkdir()
    return Shell(new_workspace(tmp_path / "alone"), tmp_path / "data", tmp_path / "home")


def call(server: RunningServer, method: str, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.base + path, data, {"Content-Type": "application/json"}, method=method)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.loads(answer.read())


def conversation(server: RunningServer, **fields: Any) -> str:
    session = call(server, "POST", "/session", {"title": "Grüße, 世界", **fields})
    body = {"model": {"providerID": "scripted", "modelID": "rules"}, "parts": [{"type": "text", "text": "read a.txt"}]}
    call(server, "POST", f"/session/{session['id']}/message", body)
    return str(session["id"])


def here(document: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """As it is where it was imported; children and all."""
    return {
        **document,
        "info": {**document["info"], **fields},
        "children": [here(each, **fields) for each in document["children"]],
    }


def test_a_session_leaves_a_running_server_and_comes_to_a_directory_without_one(
    server: RunningServer, beside: Shell, alone: Shell
) -> None:
    session = conversation(server)
    conversation(server, parentID=session)
    file = alone.workspace / "session.json"
    file.write_text("as it was")
    exported = beside.run("export", session, "--children", "--output", str(file))
    assert exported.stdout == ""
    document = json.loads(file.read_text())
    assert document == call(server, "GET", f"/session/{session}/export?children=true") and len(document["children"]) == 1
    imported = alone.run("import", "session.json")
    assert imported.stdout == f"Imported session: {session} and 1 below it\n"
    project = alone.export(session)["info"]["projectID"]
    place = {"directory": str(alone.workspace), "projectID": project}
    with_children = {**document, "children": [{**each, "children": []} for each in document["children"]]}
    kept = alone.export(session, "--children")
    assert {**kept, "children": [{**each, "children": []} for each in kept["children"]]} == here(with_children, **place)
    assert "Delete it first" in alone.run("import", "session.json", code=1).stderr
    copy = alone.run("import", "session.json", "--ids", "new").stdout.split()[2]
    assert copy != session and len(alone.export(copy)["messages"]) == len(document["messages"])


def test_what_is_imported_beside_a_running_server_it_shows_and_goes_on_with(server: RunningServer, beside: Shell) -> None:
    session = conversation(server)
    document = call(server, "GET", f"/session/{session}/export")
    imported = beside.run("import", "-", "--ids", "new", piped=json.dumps(document).encode())
    copy = imported.stdout.split()[2]
    assert copy in [each["id"] for each in call(server, "GET", "/session")]
    shown = call(server, "GET", f"/session/{copy}/message")
    assert [part.get("text") for part in shown[0]["parts"]] == [part.get("text") for part in document["messages"][0]["parts"]]
    body = {"model": {"providerID": "scripted", "modelID": "rules"}, "parts": [{"type": "text", "text": "read a.txt"}]}
    assert call(server, "POST", f"/session/{copy}/message", body)["info"]["finish"] == "stop"


def test_a_server_elsewhere_is_named_and_an_address_is_read_where_settings_allow_it(server: RunningServer, alone: Shell) -> None:
    session = conversation(server)
    document = alone.run("export", session, "--attach", server.base).stdout
    imported = alone.run("import", "-", "--ids", "new", "--attach", server.base, piped=document.encode())
    assert imported.stdout.split()[2] in [each["id"] for each in call(server, "GET", "/session")]
    assert "cannot be reached" in alone.run("export", session, "--attach", "http://127.0.0.1:1", code=1).stderr
    address = f"{server.base}/session/{session}/export"
    refused = alone.run("import", address, code=1)
    assert "not a public address" in refused.stderr and "OPENSESSION_ALLOW_PRIVATE_ADDRESSES" in refused.stderr
    small = alone.run("import", address, code=1, OPENSESSION_MAX_IMPORT_BYTES="100", **PRIVATE)
    assert "is larger than" in small.stderr
    assert alone.run("import", address, **PRIVATE).stdout == f"Imported session: {session}\n"
    assert alone.export(session)["messages"] == call(server, "GET", f"/session/{session}/export")["messages"]


def test_a_share_link_is_imported_as_its_visitors_see_it(server: RunningServer, alone: Shell) -> None:
    session = conversation(server)
    link = call(server, "POST", f"/session/{session}/share", {})["share"]["url"]
    visited = call(server, "GET", f"{link.removeprefix(server.base)}/session")
    alone.run("import", link, **PRIVATE)
    document = alone.export(session)
    assert document["messages"] == visited["messages"] and document["info"]["title"] == "Grüße, 世界"
    assert "share" not in document["info"]


def test_what_cannot_be_done_is_a_sentence_and_1(alone: Shell) -> None:
    assert alone.run("export", "ses_none", "--output", "x.json", code=1).stderr == "Session not found: ses_none\n"
    assert "none.json cannot be read: No such file" in alone.run("import", "none.json", code=1).stderr
    wrong = b'{"info": {}, "messages": []}'
    assert alone.run("import", "-", piped=wrong, code=1).stderr.startswith("info.id: ")
    assert "This is no JSON" in alone.run("import", "-", piped=b"{", code=1).stderr
    alone.run("import", "-", "--ids", "other", code=2)
    assert list(alone.workspace.glob("*.json")) == []


def test_an_export_that_cannot_be_written_leaves_the_file_that_was_there(
    server: RunningServer, beside: Shell, tmp_path: Path
) -> None:
    session, folder = conversation(server), tmp_path / "folder"
    folder.mkdir()
    assert "cannot be written" in beside.run("export", session, "--output", str(folder), code=1).stderr
    assert list(tmp_path.glob(".folder*")) == []
    markdown = beside.run("export", session, "--format", "markdown").stdout
    assert markdown.startswith("# Grüße, 世界\n")
