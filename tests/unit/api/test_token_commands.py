"""`opensession token`: made, listed, taken back."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import app
from app.users.tokens import TokenStore
from app.util import clock


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["token", *arguments])
    return result.exit_code, result.output.strip()


def test_a_token_is_shown_once_and_logs_in_until_it_is_revoked(data_dir: Path) -> None:
    code, token = run("create", "laptop")
    assert code == 0 and TokenStore(data_dir).find(token) is not None
    assert "laptop" in run("list")[1] and token not in run("list")[1]
    assert run("revoke", "laptop") == (0, "")
    assert TokenStore(data_dir).find(token) is None


def test_a_name_is_used_once_and_is_a_plain_word() -> None:
    run("create", "laptop")
    assert run("create", "laptop")[0] == 1
    assert run("create", "two words")[0] == 1
    assert run("revoke", "phone") == (1, "There is no token phone.")


def test_a_token_may_hold_for_days(data_dir: Path) -> None:
    run("create", "guest", "--days", "2")
    [entry] = TokenStore(data_dir).entries()
    assert entry.expires is not None and 0 < entry.expires - clock.now_ms() <= 2 * 24 * 3600 * 1000
    assert "until 20" in run("list")[1]
