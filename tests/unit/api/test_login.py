"""Who is let in: password, bearer tokens, tokens of one stream; and who is made to wait, by one server's count or Redis's."""

import asyncio
import base64
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from redis_server import running_redis
from storage_parts import open_storage

from app.record.tables import EVENT_TOKEN
from app.users.login import ANYONE, FAILURES, WINDOW_SECONDS, AcceptedLogin, Login, LoginDenied, RateLimits
from app.users.principal import OPERATOR, Principal
from app.users.tokens import (
    LIFETIME_MS,
    MOST,
    OneTimeTokens,
    ServerSecret,
    StoredEventTokens,
    TokenNameTaken,
    TokenStore,
)
from app.util import clock


def basic(login: str) -> str:
    return "Basic " + base64.b64encode(login.encode()).decode()


def visit(path: str = "/session", query: str = "", *, address: str = "1.2.3.4", method: str = "GET") -> dict[str, Any]:
    return {"method": method, "path": path, "query_string": query.encode(), "client": (address, 1)}


@pytest.fixture
def tokens(tmp_path: Path) -> TokenStore:
    return TokenStore(tmp_path)


async def test_the_first_token_closes_a_server_for_good_and_lets_its_owner_in_until_it_is_revoked(
    tokens: TokenStore, tmp_path: Path
) -> None:
    login = Login("opencode", None, TokenStore(tmp_path))
    for anything in (None, "Bearer whatever"):
        assert await login.check(visit(), anything) == AcceptedLogin(ANYONE)
    token = tokens.create("laptop")
    for accepted in (f"Bearer {token}", f"bearer  {token} "):
        assert await login.check(visit(), accepted) == AcceptedLogin("token laptop")
    for denied in (None, f"Bearer {token[:-1]}"):
        assert await login.check(visit(), denied) == LoginDenied()
    assert tokens.revoke("laptop")
    assert await login.check(visit(), f"Bearer {token}") == LoginDenied() == await login.check(visit(), None)
    (tmp_path / "tokens.json").unlink()
    assert await login.check(visit(), None) == LoginDenied()
    for content in ("", "[]", '{"a": 1, "b": {"hash": 5}, "c": {"hash": "é"}}'):
        (tmp_path / "tokens.json").write_text(content)
        assert await Login("opencode", None, tokens).check(visit(), "Bearer x") == LoginDenied(), "it cannot be read"


def test_a_token_is_stored_as_a_hash_for_its_owner_to_read_and_expires(
    tokens: TokenStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, path = tokens.create("short", lifetime_ms=1000), tmp_path / "tokens.json"
    assert token.removeprefix("ost_") not in path.read_text() and stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(TokenNameTaken):
        tokens.create("short")
    assert not tokens.revoke("unknown")
    now, found = clock.now_ms(), tokens.find(token)
    assert found is not None and found.name == "short"
    monkeypatch.setattr(clock, "now_ms", lambda: now + 1001)
    assert tokens.find(token) is None


def test_a_secret_that_another_process_changes_as_it_is_read_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = ServerSecret(None, tmp_path), ServerSecret(None, tmp_path)
    with monkeypatch.context() as changing:
        stored = ours._stored
        changing.setattr(ours, "_stored", lambda: (stored(), theirs.add_key())[0])
        assert len(ours.all_keys()) == 1
    assert ours.all_keys() == theirs.all_keys() and len(theirs.all_keys()) == 2


async def test_after_so_many_wrong_logins_an_address_waits(tokens: TokenStore, time_of_limits: list[float]) -> None:
    login, right, wrong = Login("opencode", "right", tokens), basic("opencode:right"), basic("opencode:wrong")
    token = tokens.create("laptop")
    for _ in range(FAILURES - 1):
        assert await login.check(visit(), wrong) == LoginDenied()
    assert await login.check(visit(), wrong) == LoginDenied(int(WINDOW_SECONDS))
    assert await login.check(visit(), right) == LoginDenied(int(WINDOW_SECONDS)), "it is not told from a wrong one"
    assert await login.check(visit(), f"Bearer {token}") == AcceptedLogin("token laptop")
    assert await login.check(visit(), None) == LoginDenied(), "who gives no login is asked for one"
    assert await login.check(visit(address="1.2.3.5"), right) == AcceptedLogin("opencode")
    time_of_limits[0] += WINDOW_SECONDS / 2
    assert await login.check(visit(), right) == LoginDenied(int(WINDOW_SECONDS / 2))
    time_of_limits[0] += WINDOW_SECONDS / 2
    assert await login.check(visit(), right) == AcceptedLogin("opencode")


async def test_an_ipv6_client_is_its_network(tokens: TokenStore) -> None:
    login, right, wrong = Login("opencode", "right", tokens), basic("opencode:right"), basic("opencode:wrong")
    for number in range(FAILURES):
        await login.check(visit(address=f"2001:db8::{number:x}"), wrong)
        await login.check(visit(address="::ffff:9.9.9.9"), wrong)
    addresses = ("2001:db8::ffff", "2001:db8:0:1::1", "9.9.9.9", "::ffff:9.9.9.8")
    checked = [await login.check(visit(address=address), right) for address in addresses]
    assert [isinstance(one, LoginDenied) for one in checked] == [True, False, True, False]


async def test_a_stream_token_opens_one_stream_once(tokens: TokenStore) -> None:
    login = Login("opencode", "right", tokens)
    for path in ("/event", "/global/event"):
        token, _ = await login.event_tokens.issue(OPERATOR)
        query = f"parts=delta&token={token}"
        for other in (visit("/session", query), visit("/event", query, method="POST"), visit("/event", f"{query}&token=x")):
            assert await login.admit(other, None) == LoginDenied()
        assert await login.admit(visit(path, query), basic("opencode:wrong")) == LoginDenied(), "a wrong login is none"
        assert await login.admit(visit(path, query), None) == AcceptedLogin("event token")
        assert await login.admit(visit(path, query), None) == LoginDenied()


async def test_a_stream_token_is_short_lived_and_they_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = OneTimeTokens[Principal](LIFETIME_MS)
    token, expires = await tokens.issue(OPERATOR)
    monkeypatch.setattr(clock, "now_ms", lambda: expires + 1)
    assert expires > LIFETIME_MS and not await tokens.redeem(token)
    first, _ = await tokens.issue(OPERATOR)
    later = [(await tokens.issue(OPERATOR))[0] for _ in range(MOST)]
    assert not await tokens.redeem(first)
    assert all([await tokens.redeem(token) for token in later])


async def test_a_stored_stream_token_is_redeemed_once_by_the_databases_clock(tmp_path: Path, migrated_database: Path) -> None:
    storage = open_storage(shutil.copy(migrated_database, tmp_path / "shared.db"))
    one, other = (StoredEventTokens(storage.writer) for _ in range(2))
    token, expires = await one.issue(OPERATOR)
    assert not await other.redeem(token + "x")
    assert sorted(map(bool, await asyncio.gather(one.redeem(token), other.redeem(token)))) == [False, True]
    late, _ = await one.issue(OPERATOR)
    clock.set_source(lambda: (expires + LIFETIME_MS) / 1000)
    assert not await other.redeem(late)
    await other.issue(OPERATOR)
    assert await storage.count(EVENT_TOKEN) == 1, "what expired is deleted"
    storage.database.close()


async def test_a_window_begins_with_its_first_hit(time_of_limits: list[float]) -> None:
    limits = RateLimits()
    assert [await limits.hit("2/minute", "anna") for _ in range(3)] == [0, 0, 60]
    assert await limits.hit("2/minute", "bert") == 0 == await limits.wait("2/minute", "bert")
    time_of_limits[0] += 30
    assert await limits.wait("2/minute", "anna") == 30
    time_of_limits[0] += 30
    assert await limits.wait("2/minute", "anna") == 0 == await limits.hit("2/minute", "anna")


async def test_a_window_ends_though_the_clock_was_put_back(time_of_limits: list[float]) -> None:
    limits = RateLimits()
    assert [await limits.hit("2/minute", "anna") for _ in range(3)] == [0, 0, 60]
    time_of_limits[0] -= 3600
    assert await limits.wait("2/minute", "anna") == 0
    assert [await limits.hit("2/minute", "anna") for _ in range(3)] == [0, 0, 60]


async def test_of_many_logins_at_one_moment_no_more_than_the_limit_are_tried(
    tokens: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever these are: Redis answers in any order."""
    tried: list[str] = []
    with running_redis() as redis:
        login = Login("opencode", "right", tokens, RateLimits(redis.url))
        monkeypatch.setattr(login, "_is_password", lambda credentials: bool(tried.append(credentials)))
        await asyncio.gather(*(login.check(visit(), basic("opencode:wrong")) for _ in range(31)))
    assert 0 < len(tried) <= FAILURES


async def test_servers_count_together_in_redis_and_alone_without_it(caplog: pytest.LogCaptureFixture) -> None:
    with running_redis() as redis:
        one, other = RateLimits(redis.url), RateLimits(redis.url)
        assert [await limits.hit("2/hour", "anna") for limits in (one, other)] == [0, 0]
        assert 3500 < await one.wait("2/hour", "anna") <= 3600 and await other.hit("2/hour", "anna") > 0
    async with asyncio.timeout(60):
        assert [await one.hit("2/hour", "bert") for _ in range(3)][:2] == [0, 0], "it counts for itself"
        assert await one.hit("2/hour", "anna") == 0 < await one.hit("2/hour", "anna"), "and knows what it has counted before"
        assert await one.wait("2/hour", "anna") > 0 and "counting in Redis for rate limits failed" in caplog.text
