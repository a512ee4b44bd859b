"""Which values of a tree are secret, and the tree without them."""

from app.util.secrets import MASK, masked, secrets_of


def test_what_is_secret_in_a_tree_of_options() -> None:
    options = {
        "apiKey": "sk-secret-1",
        "baseURL": "https://user:secret-2@host/v1",
        "headers": {"Authorization": "Bearer secret-3", "X-Model-Key": "secret-4", "X-Title": "Ours"},
        "nested": [{"clientSecret": "secret-5"}],
        "token": "short",
        "timeout": 5,
        "region": "eu-central-1",
    }
    assert set(secrets_of(options)) == {"sk-secret-1", "secret-2", "secret-3", "secret-4", "secret-5"}


def test_masking_leaves_what_only_looks_like_a_secret() -> None:
    value = {"maxTokens": 5, "setCacheKey": True, "apiKey": "", "tokenizer": "x", "access_token": "t"}
    assert masked(value) == {**value, "access_token": MASK}


def test_headers_and_logins_in_addresses_are_masked_at_any_depth() -> None:
    value = {"a": [{"headers": {"X-Key": "k", "X-Team": "blue"}, "url": "https://user:pass@host/v1"}]}
    assert masked(value) == {"a": [{"headers": {"X-Key": MASK, "X-Team": "blue"}, "url": f"https://{MASK}@host/v1"}]}


def test_what_is_plain_is_left_as_it_stands() -> None:
    assert masked({"tools": {"token": "x"}, "token": "x"}, plain={"tools"}) == {"tools": {"token": "x"}, "token": MASK}
