"""What the SDK's results become, and where tokens of remote servers are kept."""

import json
from pathlib import Path
from typing import Any

import mcp_types
import pytest

from app.schema.part import FileContent
from app.tools.mcp import client
from app.tools.mcp.values import Credentials, CredentialStore

URL = "https://example.com/mcp"
SAID = {"type": "text", "text": "one"}
LINK = {"type": "resource_link", "name": "log", "uri": "file:///log", "description": "What happened"}
HELD = {"type": "resource", "resource": {"uri": "x://y", "text": "held"}}
BLOB = {"uri": "demo://dir/clip.bin", "blob": "AAEC"}
FILE = FileContent(mime="application/octet-stream", filename="clip.bin", url="data:application/octet-stream;base64,AAEC")


@pytest.mark.parametrize(
    ("result", "text", "files"),
    [
        ({"content": [SAID, LINK, HELD]}, "one\n\n[Resource log at file:///log: What happened]\n\nheld", []),
        ({"content": [], "structuredContent": {"ü": [1]}}, '{"ü": [1]}', []),
        ({"content": [SAID], "structuredContent": {"n": 1}}, "one", []),
        ({"content": [{"type": "resource", "resource": BLOB}]}, "", [FILE]),
    ],
    ids=["texts stand apart and links are named", "data where there is no text", "data beside a text", "a blob is a file"],
)
def test_a_result_is_its_texts_and_its_files(result: dict[str, Any], text: str, files: list[FileContent]) -> None:
    found = client.content_of(mcp_types.CallToolResult.model_validate(result))
    assert (found.text, list(found.files)) == (text, files)


def test_a_resource_is_its_texts_and_its_files() -> None:
    contents = {"contents": [{"uri": "a://t", "text": "said"}, {"uri": "a://b", "mimeType": "image/png", "blob": "AA=="}]}
    found = client.content_of(mcp_types.ReadResourceResult.model_validate(contents))
    assert (found.text, [file.mime for file in found.files]) == ("said", ["image/png"])


def test_a_schema_that_says_too_little_for_providers_is_filled_in() -> None:
    schema = {"type": "object", "additionalProperties": False}
    found = client._tool("s", mcp_types.Tool(name="t", title="Title", input_schema=schema))
    assert found.schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert found.description == "Title"


def test_tokens_are_kept_by_server_in_a_file_that_its_owner_alone_can_read(tmp_path: Path) -> None:
    stored = Credentials(redirect_uri="http://127.0.0.1/cb", tokens={"access_token": "t"}, expires_at=12.5)
    store = CredentialStore(tmp_path)
    for url in (URL, "https://other.example/mcp"):
        store.put(url, stored)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    assert CredentialStore(tmp_path).get(URL) == stored
    store.remove(URL)
    store.remove("https://never.example/mcp")
    assert store.get(URL) is None and store.get("https://other.example/mcp") == stored


@pytest.mark.parametrize("text", [json.dumps({URL: {"tokens": 3}}), "no json"])
def test_an_entry_that_is_broken_counts_as_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "mcp-auth.json").write_text(text)
    assert CredentialStore(tmp_path).get(URL) is None
