"""Settings from the environment: which are refused, and how a command says so."""

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from app import cli
from app.settings import Settings


@pytest.mark.parametrize("url", ["redis://cache:6379/0", "rediss://user:secret@cache", "unix:///run/redis.sock"])
def test_addresses_of_redis(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESSION_REDIS_URL", url)
    assert Settings().redis_url == url


@pytest.mark.parametrize("url", ["cache:6379", "http://cache", "redis://", "/run/redis.sock"])
def test_what_is_no_address_of_redis_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESSION_REDIS_URL", url)
    with pytest.raises(ValidationError):
        Settings()


def test_an_empty_address_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESSION_REDIS_URL", "")
    assert Settings().redis_url is None


def test_a_command_names_the_setting_that_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESSION_REDIS_URL", "http://user:secret@cache")
    monkeypatch.setenv("OPENSESSION_SHUTDOWN_SECONDS", "-1")
    result = CliRunner().invoke(cli.app, ["serve"])
    assert result.exit_code == 1 and "secret" not in result.output
    assert "OPENSESSION_REDIS_URL: " in result.output and "OPENSESSION_SHUTDOWN_SECONDS: " in result.output
