"""`opensession user`: added, listed, removed; and the tokens that belong to them."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import app, serve
from app.main import create_app
from app.record.engine import Database
from app.settings import Settings
from app.users.login import AcceptedLogin, Login, LoginDenied
from app.users.principal import Principal, Role
from app.users.tokens import TokenStore
from app.users.users import Users

NOBODY = {"method": "GET", "path": "/session", "query_string": b"", "client": None}


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*arguments])
    return result.exit_code, result.output.strip()


async def check(data_dir: Path, authorization: str | None) -> AcceptedLogin | LoginDenied:
    database = Database(f"sqlite:///{data_dir / 'opensession.db'}")
    try:
        users = Users(database)
        return await Login("opencode", None, TokenStore(data_dir), users=users).check(NOBODY, authorization)
    finally:
        database.close()


def test_a_user_logs_in_by_their_tokens_until_they_are_removed(data_dir: Path, tmp_path: Path) -> None:
    root = tmp_path / "projects"
    root.mkdir()
    assert run("user", "add", "anna", "--role", "member", "--root", str(root), "--max-tokens", "1000") == (0, "")
    assert asyncio.run(check(data_dir, None)) == LoginDenied(), "a server with users needs a login"
    _, token = run("token", "create", "laptop", "--user", "anna", "--read-only")
    who = Principal("anna", Role.MEMBER, read_only=True, roots=(str(root),))
    assert asyncio.run(check(data_dir, f"Bearer {token}")) == AcceptedLogin("user anna, token laptop", who)
    assert "laptop" in (listed := run("token", "list")[1]) and "user anna" in listed and "read-only" in listed
    name, role, _, *rest = run("user", "list")[1].split("\t")
    assert (name, role, rest) == ("anna", "member", [str(root), "1000 tokens a day"])
    assert run("user", "set", "anna", "--max-tokens", "2000") == (0, "")
    assert run("user", "list")[1].endswith(f"{root}\t2000 tokens a day")
    assert run("user", "set", "anna", "--role", "viewer") == (0, "") and str(root) not in run("user", "list")[1]
    assert run("user", "remove", "anna") == (0, "")
    assert run("token", "list") == (0, "") and run("user", "list") == (0, "")
    assert asyncio.run(check(data_dir, f"Bearer {token}")) == LoginDenied()


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    (tmp_path / "checkout" / ".git").mkdir(parents=True)
    (tmp_path / "checkout" / "part").mkdir()
    run("user", "add", "anna", "--role", "member")
    for wrong, said in (
        (["user", "add", "anna", "--role", "admin"], "already"),
        (["user", "add", "two words", "--role", "member"], "name"),
        (["user", "add", "bert", "--role", "viewer", "--root", str(tmp_path)], "Only members have roots"),
        (["user", "add", "bert", "--role", "member", "--root", str(tmp_path / "none")], "no directory"),
        (["user", "add", "bert", "--role", "member", "--root", str(tmp_path / "checkout" / "part")], "part of the checkout"),
        (["user", "remove", "bert"], "no user bert"),
        (["user", "set", "bert", "--role", "viewer"], "no user bert"),
        (["token", "create", "t", "--user", "bert"], "no user bert"),
    ):
        code, output = run(*wrong)
        assert code == 1 and said in output, (wrong, output)


def test_an_identity_provider_is_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server beyond loopback starts with one, and nobody is let in without."""
    assert serve._login(Settings()) is None
    monkeypatch.setenv("OPENSESSION_OIDC_ISSUER", "https://login.example.com")
    monkeypatch.setenv("OPENSESSION_OIDC_AUDIENCE", "opensession")
    assert "Bearer" in (serve._login(Settings()) or "")
    assert create_app(Settings(), workspace=tmp_path).state.server.login.is_required()


def test_an_issuer_needs_an_audience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESSION_OIDC_ISSUER", "https://login.example.com")
    code, output = run("user", "list")
    assert code == 1 and "OPENSESSION_OIDC_AUDIENCE" in output
