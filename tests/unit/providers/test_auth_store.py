import json
from pathlib import Path

from app.providers.connected import AuthStore, key_variables
from app.schema.model import ApiAuth, OAuth, ProviderInfo, WellKnownAuth

ENTRIES = {
    "a": {"type": "api", "key": "k"},
    "o": {"type": "oauth", "refresh": "r", "access": "x", "expires": 5, "accountId": "acc", "enterpriseUrl": "https://e"},
    "w": {"type": "wellknown", "key": "K", "token": "t"},
    "broken": {"type": "api"},
    "strange": 5,
}


def write(directory: Path, content: str) -> None:
    (directory / "auth.json").write_text(content)


def test_the_three_kinds_are_read_and_invalid_entries_passed_over(tmp_path):
    write(tmp_path, json.dumps(ENTRIES))
    assert AuthStore(tmp_path).all() == {
        "a": ApiAuth(key="k"),
        "o": OAuth(refresh="r", access="x", expires=5, account_id="acc", enterprise_url="https://e"),
        "w": WellKnownAuth(key="K", token="t"),
    }


def test_what_is_set_is_there_for_the_next_process(tmp_path):
    store, login = AuthStore(tmp_path / "data"), OAuth(refresh="r", access="x", expires=5, account_id="acc")
    assert (store.all(), store.get("o")) == ({}, None)
    store.set("o", login)
    assert AuthStore(tmp_path / "data").get("o") == login
    assert json.loads((tmp_path / "data" / "auth.json").read_text())["o"]["accountId"] == "acc"


def test_setting_or_removing_one_keeps_the_others_even_those_it_cannot_read(tmp_path):
    write(tmp_path, json.dumps(ENTRIES))
    store = AuthStore(tmp_path)
    store.set("new", ApiAuth(key="n"))
    assert json.loads((tmp_path / "auth.json").read_text()) == {**ENTRIES, "new": {"type": "api", "key": "n"}}
    store.remove("a")
    store.remove("never there")
    assert list(store.all()) == ["o", "w", "new"]


def test_a_change_by_another_process_is_seen(tmp_path):
    store, other = AuthStore(tmp_path), AuthStore(tmp_path)
    assert store.all() == {}
    for key in ("1", "2"):
        other.set("a", ApiAuth(key=key))
        assert store.get("a") == ApiAuth(key=key)


def test_a_broken_file_stops_nothing_and_is_kept_aside(tmp_path):
    write(tmp_path, '{"a": {"type": "api", "key": "mine"},}')
    store = AuthStore(tmp_path)
    assert store.all() == {}
    store.set("b", ApiAuth(key="k"))
    assert list(store.all()) == ["b"]
    assert "mine" in (tmp_path / "auth.json.bad").read_text()


def test_variables_that_hold_a_key_are_those_that_are_named_and_those_whose_value_is_used() -> None:
    options = {"headers": {"Authorization": "Bearer from-a-variable"}, "region": "eu-central-1"}
    info = ProviderInfo(id="company", name="Company", source="config", env=["COMPANY_LLM"], options=options, models={})
    environ = {"COMPANY_LLM": "a", "LOGIN": "from-a-variable", "REGION": "eu-central-1", "HOME": "/home"}
    assert key_variables([info], environ) == {"COMPANY_LLM", "LOGIN"}
