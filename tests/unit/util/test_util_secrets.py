"""Which values of a tree are secret, and where things live."""

import base64
from pathlib import Path

import pytest

from app.util import environment
from app.util.secrets import MASK, masked, redacted, secrets_of, without_secrets, words_of_secrets


def basic(login: str) -> str:
    return base64.b64encode(login.encode()).decode()


def test_what_is_secret_in_a_tree_of_options() -> None:
    headers = {"Authorization": "Bearer secret-3", "X-Model-Key": "secret-4", "X-Title": "secret-6", "X-Org": "Ours"}
    plain = {"token": "short", "timeout": 5, "region": "eu-central-1"}
    options = {"apiKey": "sk-secret-1", "baseURL": "https://user:secret-2@host/v1", "headers": headers}
    found = set(secrets_of({**options, "nested": [{"clientSecret": "secret-5"}], **plain}))
    assert found == {"sk-secret-1", *(f"secret-{n}" for n in range(2, 7)), basic("user:secret-2")}
    found = set(secrets_of({"url": "https://user:secret-1@host/v1?key=secret-2&b=%73ecret-3"}))
    assert found == {"secret-1", "secret-2", "%73ecret-3", "secret-3", basic("user:secret-1")}


def test_masking_leaves_what_only_looks_like_a_secret() -> None:
    value = {"maxTokens": 5, "setCacheKey": True, "apiKey": "", "tokenizer": "x", "access_token": "t"}
    assert masked(value) == {**value, "access_token": MASK}
    assert masked({"tools": {"token": "x"}, "token": "x"}, plain={"tools"}) == {"tools": {"token": "x"}, "token": MASK}


def test_each_of_several_secrets_is_masked() -> None:
    value = {"apiKeys": ["sk-secret-1", {"note": "no secret"}, 5], "scopes": ["read"]}
    assert masked(value) == {"apiKeys": [MASK, {"note": "no secret"}, 5], "scopes": ["read"]}
    assert without_secrets(value) == {"scopes": ["read"]}
    assert set(secrets_of(value)) == {"sk-secret-1"}


@pytest.mark.parametrize(
    "said",
    [
        "longer-secret/1",
        "secret/1-and-more",
        "longer-secret%2F1",
        'secret/\\"2',
        "secret%2F%222",
        "p\\u00e4ssword",
        "p%C3%A4ssword",
    ],
)
def test_a_quoted_secret_is_masked_whole_however_it_is_written(said: str) -> None:
    secrets = ["\ud800secret", "secret/1", "longer-secret/1", "secret/1-and-more", 'secret/"2', "pässword"]
    assert redacted(f"Wrong: {said}!", secrets) == f"Wrong: {MASK}!"


def test_a_login_in_an_address_is_secret_as_it_is_sent() -> None:
    found = set(secrets_of({"url": "https://user:p%40ss-word@host/v1"}))
    assert found == {"p%40ss-word", "p@ss-word", basic("user:p@ss-word")}


def test_what_is_secret_in_the_words_of_a_command() -> None:
    command = ["npx", "remote", "https://user:secret-1@host/sse?key=secret-2&v=x", "--header", "Authorization: Bearer secret-3"]
    command += [
        "-H",
        "X-Odd: secret-4",
        "--token",
        "secret-5",
        "--api-key=secret-6",
        "KEY=secret-7",
        "X-Api-Key:secret-8",
        "plain:",
    ]
    assert {f"secret-{number}" for number in range(1, 9)} <= set(words_of_secrets(command))
    assert not {"remote", "https://host", "plain", "x"} & set(words_of_secrets(command))


def test_headers_and_logins_in_addresses_are_masked_at_any_depth() -> None:
    value = {"a": [{"headers": {"X-Key": "k", "X-Team": "blue"}, "url": "https://user:p@ss@host/v1?a=b&c"}]}
    hidden = {"headers": {"X-Key": MASK, "X-Team": MASK}, "url": f"https://{MASK}@host/v1?{MASK}"}
    assert masked(value) == {"a": [hidden]}
    assert without_secrets(value) == {"a": [{"url": "https://host/v1"}]}


def test_a_folder_is_below_home_unless_its_variable_says_otherwise(
    plain_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert environment.opencode_config_dir() == plain_environment / ".config/opencode"
    monkeypatch.setenv("XDG_CONFIG_HOME", "/elsewhere")
    assert environment.opencode_config_dir() == Path("/elsewhere/opencode")
    for kind, below in (("data", ".local/share"), ("state", ".local/state")):
        place = getattr(environment, f"{kind}_home")
        assert place() == plain_environment / below
        monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", "/elsewhere")
        assert place() == Path("/elsewhere")
