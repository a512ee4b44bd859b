"""Which values of a tree are secret, and the tree without them."""

from app.util.secrets import MASK, masked, secrets_of, without_secrets


def test_what_is_secret_in_a_tree_of_options() -> None:
    options = {
        "apiKey": "sk-secret-1",
        "baseURL": "https://user:secret-2@host/v1",
        "headers": {"Authorization": "Bearer secret-3", "X-Model-Key": "secret-4", "X-Title": "secret-6", "X-Org": "Ours"},
        "nested": [{"clientSecret": "secret-5"}],
        "token": "short",
        "timeout": 5,
        "region": "eu-central-1",
    }
    assert set(secrets_of(options)) == {"sk-secret-1", "secret-2", "secret-3", "secret-4", "secret-5", "secret-6"}


def test_masking_leaves_what_only_looks_like_a_secret() -> None:
    value = {"maxTokens": 5, "setCacheKey": True, "apiKey": "", "tokenizer": "x", "access_token": "t"}
    assert masked(value) == {**value, "access_token": MASK}


def test_headers_and_logins_in_addresses_are_masked_at_any_depth() -> None:
    value = {"a": [{"headers": {"X-Key": "k", "X-Team": "blue"}, "url": "https://user:p@ss@host/v1?a=b&c"}]}
    hidden = {"headers": {"X-Key": MASK, "X-Team": MASK}, "url": f"https://{MASK}@host/v1?{MASK}"}
    assert masked(value) == {"a": [hidden]}
    assert without_secrets(value) == {"a": [{"url": "https://host/v1"}]}
    assert set(secrets_of({"url": "https://user:secret-1@host/v1?key=secret-2&b=%73ecret-3"})) == {
        "secret-1",
        "secret-2",
        "%73ecret-3",
        "secret-3",
    }


def test_what_is_plain_is_left_as_it_stands() -> None:
    assert masked({"tools": {"token": "x"}, "token": "x"}, plain={"tools"}) == {"tools": {"token": "x"}, "token": MASK}
