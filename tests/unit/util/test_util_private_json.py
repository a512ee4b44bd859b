"""Servers and commands of one user share the files: each change is made to what is there."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from app.providers.connected import AuthStore
from app.schema.model import ApiAuth
from app.tools.mcp.values import Credentials, CredentialStore
from app.users.tokens import TokenNameTaken, TokenStore
from app.util.data_files import PrivateJson

AT_ONCE = 8


def at_once(change: Callable[[int], object], count: int = 40) -> None:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for outcome in [threads.submit(change, number) for number in range(count)]:
            outcome.result()


def test_keys_that_several_servers_store_at_once_are_all_kept(tmp_path: Path) -> None:
    at_once(lambda number: AuthStore(tmp_path).set(f"provider-{number}", ApiAuth(type="api", key="k")))
    assert len(AuthStore(tmp_path).all()) == 40


def test_sign_ins_that_several_servers_store_at_once_are_all_kept(tmp_path: Path) -> None:
    at_once(lambda number: CredentialStore(tmp_path).put(f"https://{number}", Credentials(redirect_uri="http://here")))
    assert all(CredentialStore(tmp_path).get(f"https://{number}") for number in range(40))


def test_tokens_made_and_revoked_at_once_are_as_acknowledged(tmp_path: Path) -> None:
    TokenStore(tmp_path).create("old")
    at_once(lambda number: TokenStore(tmp_path).create(f"token-{number}") if number else TokenStore(tmp_path).revoke("old"))
    assert {entry.name for entry in TokenStore(tmp_path).entries()} == {f"token-{number}" for number in range(1, 40)}


def test_of_those_who_make_a_token_of_one_name_one_gets_it(tmp_path: Path) -> None:
    made: list[str] = []

    def create(_: int) -> None:
        with suppress(TokenNameTaken):
            made.append(TokenStore(tmp_path).create("same"))

    at_once(create)
    assert len(made) == 1 and TokenStore(tmp_path).find(made[0]) is not None


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    file = PrivateJson(tmp_path / "it.json")
    with file.updating() as content:
        content["kept"] = 1
    with pytest.raises(ValueError), file.updating() as content:
        content["lost"] = 2
        raise ValueError
    assert file.read() == {"kept": 1}


def test_a_change_of_nothing_writes_nothing(tmp_path: Path) -> None:
    file = PrivateJson(tmp_path / "it.json")
    with file.updating():
        pass
    assert file.stamp() is None
