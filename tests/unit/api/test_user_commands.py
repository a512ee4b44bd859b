"""`opensession user` and `opensession token`: added, listed, taken back; and the tokens that belong to users."""

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
from app.util import clock

DAY_MS = 24 * 3600 * 1000


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def run(words: str, *more: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*words.split(), *more])
    return result.exit_code, result.output.strip()


def check(data_dir: Path, authorization: str | None) -> AcceptedLogin | LoginDenied:
    database = Database(f"sqlite:///{data_dir / 'opensession.db'}")
    nobody = {"method": "GET", "path": "/session", "query_string": b"", "client": None}
    try:
        login = Login("opencode", None, TokenStore(data_dir), users=Users(database))
        return asyncio.run(login.check(nobody, authorization))
    finally:
        database.close()


def test_a_token_is_shown_once_and_logs_in_until_it_is_revoked_or_its_days_are_over(data_dir: Path) -> None:
    code, token = run("token create laptop")
    assert code == 0 and TokenStore(data_dir).find(token) is not None
    assert "laptop" in run("token list")[1] and token not in run("token list")[1]
    assert run("token revoke laptop") == (0, "") and TokenStore(data_dir).find(token) is None
    run("token create guest --days 2")
    [entry] = TokenStore(data_dir).entries()
    assert entry.expires is not None and 0 < entry.expires - clock.now_ms() <= 2 * DAY_MS and "until 20" in run("token list")[1]


def test_a_user_logs_in_by_their_tokens_until_they_are_removed(data_dir: Path, tmp_path: Path) -> None:
    root = tmp_path / "projects"
    root.mkdir()
    assert run(f"user add anna --role member --max-tokens 1000 --root {root}") == (0, "")
    assert check(data_dir, None) == LoginDenied(), "a server with users needs a login"
    _, token = run("token create laptop --user anna --read-only")
    who = Principal("anna", Role.MEMBER, read_only=True, roots=(str(root),))
    assert check(data_dir, f"Bearer {token}") == AcceptedLogin("user anna, token laptop", who)
    assert "laptop" in (listed := run("token list")[1]) and "user anna" in listed and "read-only" in listed
    name, role, _, *rest = run("user list")[1].split("\t")
    assert (name, role, rest) == ("anna", "member", [str(root), "1000 tokens a day"])
    assert run("user set anna --max-tokens 2000") == (0, "")
    assert run("user list")[1].endswith(f"{root}\t2000 tokens a day")
    assert run("user set anna --role viewer") == (0, "") and str(root) not in run("user list")[1]
    assert run("user remove anna") == (0, "")
    assert run("token list") == (0, "") == run("user list")
    assert check(data_dir, f"Bearer {token}") == LoginDenied()


def test_what_is_wrong_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = tmp_path / "checkout" / "part"
    (tmp_path / "checkout" / ".git").mkdir(parents=True)
    part.mkdir()
    run("user add anna --role member")
    run("token create laptop")
    for words, more, said in (
        ("user add anna --role admin", [], "already"),
        ("user add --role member", ["two words"], "name"),
        (f"user add bert --role viewer --root {tmp_path}", [], "Only members have roots"),
        (f"user add bert --role member --root {tmp_path / 'none'}", [], "no directory"),
        (f"user add bert --role member --root {part}", [], "part of the checkout"),
        ("user remove bert", [], "no user bert"),
        ("user set bert --role viewer", [], "no user bert"),
        ("token create t --user bert", [], "no user bert"),
        ("token create laptop", [], "already"),
        ("token create", ["two words"], "letters, digits"),
        ("token revoke phone", [], "There is no token phone."),
    ):
        code, output = run(words, *more)
        assert code == 1 and said in output, (words, output)
    assert run("token create", "far", "--days", "99999999")[0] == 2, "a list could not show the day"
    monkeypatch.setenv("OPENSESSION_OIDC_ISSUER", "https://login.example.com")
    code, output = run("user list")
    assert code == 1 and "OPENSESSION_OIDC_AUDIENCE" in output, "an issuer needs an audience"


def test_an_identity_provider_is_a_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server beyond loopback starts with one, and nobody is let in without."""
    assert serve._login(Settings()) is None
    monkeypatch.setenv("OPENSESSION_OIDC_ISSUER", "https://login.example.com")
    monkeypatch.setenv("OPENSESSION_OIDC_AUDIENCE", "opensession")
    assert "Bearer" in (serve._login(Settings()) or "")
    assert create_app(Settings(), workspace=tmp_path).state.server.login.is_required()
