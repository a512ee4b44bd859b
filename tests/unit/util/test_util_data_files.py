"""Servers and commands of one user share the files: each change is made to what is there."""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from running_server import ROOT

from app.providers.connected import AuthStore
from app.schema.model import ApiAuth
from app.tools.mcp.values import Credentials, CredentialStore
from app.users.tokens import TokenNameTaken, TokenStore
from app.util.data_files import PrivateJson, ServerLocks

AT_ONCE = 8


def at_once(change: Callable[[int], object], count: int = 40) -> None:
    with ThreadPoolExecutor(AT_ONCE) as threads:
        for outcome in [threads.submit(change, number) for number in range(count)]:
            outcome.result()


def test_keys_and_sign_ins_that_several_servers_store_at_once_are_all_kept(tmp_path: Path) -> None:
    at_once(lambda number: AuthStore(tmp_path).set(f"provider-{number}", ApiAuth(type="api", key="k")))
    assert len(AuthStore(tmp_path).all()) == 40
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


def test_a_change_that_fails_leaves_the_file_as_it_was_and_one_of_nothing_writes_nothing(tmp_path: Path) -> None:
    file = PrivateJson(tmp_path / "it.json")
    with file.updating():
        pass
    assert file.stamp() is None
    with file.updating() as content:
        content["kept"] = 1
    with pytest.raises(ValueError), file.updating() as content:
        content["lost"] = 2
        raise ValueError
    assert file.read() == {"kept": 1}


HOLDS = """
import sys, time
from pathlib import Path
from app.util.data_files import ServerLocks
ServerLocks(Path(sys.argv[1])).hold("other")
print("held", flush=True)
time.sleep(60)
"""


def test_a_lock_is_seen_by_others_until_it_is_released(tmp_path: Path) -> None:
    own, others = ServerLocks(tmp_path / "servers"), ServerLocks(tmp_path / "servers")
    assert others.is_held("mine") is None
    own.hold("mine")
    assert others.is_held("mine") is True and own.is_held("mine") is True
    own.release()
    assert others.is_held("mine") is None and list((tmp_path / "servers").iterdir()) == []


def test_a_killed_process_holds_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path], cwd=ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    locks = ServerLocks(tmp_path)
    assert locks.is_held("other") is True
    process.kill()
    process.wait()
    process.stdout.close()
    assert locks.is_held("other") is False


def test_files_of_dead_servers_are_removed_and_no_others(tmp_path: Path) -> None:
    living, locks = ServerLocks(tmp_path), ServerLocks(tmp_path)
    living.hold("living")
    (tmp_path / "dead.lock").touch()
    locks.remove_unlocked()
    assert [path.name for path in tmp_path.iterdir()] == ["living.lock"]
    living.release()
