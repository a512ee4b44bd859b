"""Settings from the environment: which are refused, and how a command says so."""

from pathlib import Path

import pytest
from pydantic import ValidationError
from shell_commands import Shell

from app.settings import Settings, unknown_variables


@pytest.mark.parametrize("url", ["redis://cache:6379/0", "rediss://user:secret@cache", "unix:///run/redis.sock", ""])
def test_addresses_of_redis(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENSESSION_REDIS_URL", url)
    assert Settings().redis_url == (url or None)


@pytest.mark.parametrize("url", ["cache:6379", "http://user:secret@cache", "redis://", "/run/redis.sock"])
def test_what_is_no_address_of_redis_is_refused_without_being_told(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError) as refused:
        Settings(redis_url=url)
    assert "secret" not in str(refused.value)
    monkeypatch.setenv("OPENSESSION_REDIS_URL", url)
    with pytest.raises(ValidationError):
        Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("public_url", "agent.example.com"),
        ("public_url", "https://"),
        ("oidc_issuer", "login.example.com"),
        ("cors_origins", "*"),
        ("cors_origins", "loopback,https://app.example.com/"),
        ("cors_origins", "app.example.com"),
        ("shutdown_seconds", "inf"),
        ("shutdown_seconds", "1e300"),
        ("idle_seconds", "inf"),
        ("oidc_audience", "opensession"),
        ("oidc_role_claim", "roles"),
    ],
)
def test_what_would_do_nothing_or_end_in_a_traceback_is_refused(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "oidc_issuer":
        monkeypatch.setenv("OPENSESSION_OIDC_AUDIENCE", "opensession")
    monkeypatch.setenv(f"OPENSESSION_{name.upper()}", value)
    with pytest.raises(ValidationError):
        Settings()


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Settings()
    for name in Settings.model_fields:
        monkeypatch.setenv(f"OPENSESSION_{name.upper()}", "")
    assert Settings() == given


def test_what_looks_like_a_setting_and_is_none_is_named() -> None:
    given = {"OPENSESSION_ROOT": "/srv", "opensession_metrics": "1", "OPENSESSION_PASSWORD": "secret", "OPENSESSION_MODEL": ""}
    of_others = {"OPENSESSION_TOKEN": "t", "OPENSESSION_SERVICE_HOST": "10.0.0.1", "OPENSESSION_PORT_4096_TCP": "tcp://10.0.0.1"}
    assert list(unknown_variables(given | of_others)) == [
        "OPENSESSION_PASSWORD is no setting, and changes nothing.",
        "OPENSESSION_ROOT is no setting, and changes nothing. Is OPENSESSION_ROOTS meant?",
    ]


def test_a_command_names_the_setting_that_is_wrong(tmp_path: Path) -> None:
    wrong = {"OPENSESSION_REDIS_URL": "http://user:secret@cache", "OPENSESSION_SHUTDOWN_SECONDS": "-1"}
    result = Shell(tmp_path, tmp_path, tmp_path / "data", wrong).done("serve", code=1)
    assert "secret" not in result.stderr
    assert "OPENSESSION_REDIS_URL: " in result.stderr and "OPENSESSION_SHUTDOWN_SECONDS: " in result.stderr


def test_what_is_given_goes_before_the_environment_which_alone_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENSESSION_MAX_WEBHOOKS=1\nOPENSESSION_MAX_TERMINALS=1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("opensession_max_webhooks", "3")  # which may be written in small letters
    monkeypatch.setenv("MAX_TERMINALS", "4")
    assert (Settings().max_webhooks, Settings(max_webhooks=2).max_webhooks, Settings().max_terminals) == (3, 2, 20)
