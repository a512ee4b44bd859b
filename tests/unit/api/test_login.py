"""Who is let in: password, bearer tokens, tokens of one stream, and who is made to wait."""

import asyncio
import base64
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from storage_parts import open_storage

from app.record.tables import EVENT_TOKEN
from app.users import login as login_module
from app.users.login import ANYONE, FAILURES, WINDOW_SECONDS, AcceptedLogin, Login, LoginDenied, RateLimits, Throttle
from app.users.tokens import LIFETIME_MS, MOST, MemoryEventTokens, StoredEventTokens, TokenNameTaken, TokenStore
from app.util import clock


def basic(login: str) -> str:
    return "Basic " + base64.b64encode(login.encode()).decode()


def visit(path: str = "/session", query: str = "", *, address: str = "1.2.3.4", method: str = "GET") -> dict[str, Any]:
    return {"method": method, "path": path, "query_string": query.encode(), "client": (address, 1)}


@pytest.fixture
def tokens(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path)


async def test_without_a_password_or_a_token_anyone_is_let_in(tokens: TokenStore) -> None:
    login = Login("opencode", None, tokens)
    assert await login.check(visit(), None) == AcceptedLogin(ANYONE)
    assert await login.check(visit(), "Bearer whatever") == AcceptedLogin(ANYONE)


async def test_a_password_is_compared_as_bytes_whatever_was_sent(tokens: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module, "LIMIT", "1000/minute")
    login = Login("opencode", "pässword", tokens)
    for odd in (None, "", "Basic", "Basic \x00", "Basic ====", "basic " + "A" * 100_000, "Digest x", "Bearer \udcff", "Bearer"):
        assert isinstance(await login.check(visit(), odd), LoginDenied), odd
    assert await login.check(visit(), basic("opencode:pässword")) == AcceptedLogin("opencode")


async def test_a_token_lets_its_owner_in_until_it_is_revoked(tokens: TokenStore, tmp_path: Path) -> None:
    token = tokens.create("laptop")
    login = Login("opencode", None, TokenStore(tmp_path))
    assert await login.check(visit(), f"Bearer {token}") == AcceptedLogin("token laptop")
    assert await login.check(visit(), f"bearer  {token} ") == AcceptedLogin("token laptop")
    assert await login.check(visit(), f"Bearer {token[:-1]}") == LoginDenied()
    assert tokens.revoke("laptop")
    assert await login.check(visit(), f"Bearer {token}") == LoginDenied()


async def test_a_server_that_was_closed_by_a_token_stays_closed(tokens: TokenStore, tmp_path: Path) -> None:
    login = Login("opencode", None, tokens)
    tokens.create("a")
    assert await login.check(visit(), None) == LoginDenied()
    tokens.revoke("a")
    assert await login.check(visit(), None) == LoginDenied()
    (tmp_path / "tokens.json").unlink()
    assert await login.check(visit(), None) == LoginDenied()


async def test_a_file_of_tokens_that_cannot_be_read_denies_every_login(tokens: TokenStore, tmp_path: Path) -> None:
    for content in ("", "[]", '{"a": 1, "b": {"hash": 5}, "c": {"hash": "é"}}'):
        (tmp_path / "tokens.json").write_text(content)
        assert await Login("opencode", None, tokens).check(visit(), "Bearer x") == LoginDenied()


def test_a_token_expires(tokens: TokenStore, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tokens.create("short", lifetime_ms=1000)
    now = clock.now_ms()
    found = tokens.find(token)
    assert found is not None and found.name == "short"
    monkeypatch.setattr(clock, "now_ms", lambda: now + 1001)
    assert tokens.find(token) is None


def test_only_hashes_are_stored_and_only_for_the_owner_to_read(tokens: TokenStore, tmp_path: Path) -> None:
    token = tokens.create("laptop")
    path = tmp_path / "tokens.json"
    assert token not in path.read_text() and token.removeprefix("ost_") not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(TokenNameTaken):
        tokens.create("laptop")
    assert not tokens.revoke("unknown")


async def test_after_so_many_wrong_logins_an_address_waits(tokens: TokenStore, time_of_limits: list[float]) -> None:
    login = Login("opencode", "right", tokens)
    token = tokens.create("laptop")
    for _ in range(FAILURES - 1):
        assert await login.check(visit(), basic("opencode:wrong")) == LoginDenied()
    assert await login.check(visit(), basic("opencode:wrong")) == LoginDenied(int(WINDOW_SECONDS))
    assert await login.check(visit(), basic("opencode:right")) == LoginDenied(int(WINDOW_SECONDS)), (
        "the right one is not told from a wrong one"
    )
    assert await login.check(visit(), f"Bearer {token}") == AcceptedLogin("token laptop")
    assert await login.check(visit(), None) == LoginDenied(), "who gives no login is asked for one"
    assert await login.check(visit(address="1.2.3.5"), basic("opencode:right")) == AcceptedLogin("opencode")
    time_of_limits[0] += WINDOW_SECONDS / 2
    assert await login.check(visit(), basic("opencode:right")) == LoginDenied(int(WINDOW_SECONDS / 2))
    time_of_limits[0] += WINDOW_SECONDS / 2
    assert await login.check(visit(), basic("opencode:right")) == AcceptedLogin("opencode")


async def test_an_ipv6_client_is_its_network(tokens: TokenStore) -> None:
    throttle = Throttle(RateLimits())
    for number in range(FAILURES):
        await throttle.failed(f"2001:db8::{number:x}")
    assert await throttle.wait("2001:db8::ffff") and not await throttle.wait("2001:db8:0:1::1")
    for _ in range(FAILURES):
        await throttle.failed("::ffff:9.9.9.9")
    assert await throttle.wait("9.9.9.9") and not await throttle.wait("::ffff:9.9.9.8")


async def test_a_stream_token_opens_one_stream_once(tokens: TokenStore) -> None:
    login = Login("opencode", "right", tokens)
    for path in ("/event", "/global/event"):
        token, _ = await login.event_tokens.issue()
        query = f"parts=delta&token={token}"
        assert await login.admit(visit("/session", query), None) == LoginDenied()
        assert await login.admit(visit("/event", query, method="POST"), None) == LoginDenied()
        assert await login.admit(visit("/event", f"{query}&token=x"), None) == LoginDenied()
        assert await login.admit(visit(path, query), basic("opencode:wrong")) == LoginDenied(), "a wrong login is none"
        assert await login.admit(visit(path, query), None) == AcceptedLogin("event token")
        assert await login.admit(visit(path, query), None) == LoginDenied()


async def test_a_stream_token_is_short_lived_and_they_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = MemoryEventTokens()
    token, expires = await tokens.issue()
    monkeypatch.setattr(clock, "now_ms", lambda: expires + 1)
    assert expires > LIFETIME_MS and not await tokens.redeem(token)
    first, _ = await tokens.issue()
    later = [(await tokens.issue())[0] for _ in range(MOST)]
    assert not await tokens.redeem(first)
    assert all([await tokens.redeem(token) for token in later])


async def test_a_stored_stream_token_is_redeemed_once_by_the_databases_clock(tmp_path: Path, migrated_database: Path) -> None:
    shutil.copy(migrated_database, tmp_path / "shared.db")
    storage = open_storage(tmp_path / "shared.db")
    one, other = (StoredEventTokens(storage.writer) for _ in range(2))
    token, expires = await one.issue()
    assert not await other.redeem(token + "x")
    assert sorted(map(bool, await asyncio.gather(one.redeem(token), other.redeem(token)))) == [False, True]
    late, _ = await one.issue()
    clock.set_source(lambda: (expires + LIFETIME_MS) / 1000)
    try:
        assert not await other.redeem(late)
        await other.issue()
        assert await storage.count(EVENT_TOKEN) == 1, "what expired is deleted"
    finally:
        clock.set_source()
    storage.database.close()
