"""Where tokens of remote servers are kept."""

from pathlib import Path

from app.tools.mcp.values import Credentials, CredentialStore

URL = "https://example.com/mcp"


def test_tokens_are_kept_in_a_file_that_its_owner_alone_can_read(tmp_path: Path) -> None:
    stored = Credentials(redirect_uri="http://127.0.0.1/cb", tokens={"access_token": "t"}, expires_at=12.5)
    CredentialStore(tmp_path).put(URL, stored)
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}
    assert CredentialStore(tmp_path).get(URL) == stored


def test_tokens_of_one_server_go_without_the_others(tmp_path: Path) -> None:
    store = CredentialStore(tmp_path)
    for url in (URL, "https://other.example/mcp"):
        store.put(url, Credentials(redirect_uri=url))
    store.remove(URL)
    store.remove("https://never.example/mcp")
    assert store.get(URL) is None and store.get("https://other.example/mcp") is not None


def test_an_entry_that_is_broken_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "mcp-auth.json").write_text('{"https://example.com/mcp": {"tokens": 3}}')
    assert CredentialStore(tmp_path).get(URL) is None
    (tmp_path / "mcp-auth.json").write_text("no json")
    assert CredentialStore(tmp_path).get(URL) is None
