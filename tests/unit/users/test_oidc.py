"""Tokens of an identity provider, against a small real one."""

import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from flood import flooding, repeated
from identity_provider import AUDIENCE, IdentityProvider, identity_provider

from app.record.engine import Database
from app.users.oidc import LEEWAY_SECONDS, OidcLogins, ProviderKeys
from app.users.principal import Principal, Role
from app.users.users import User, Users

ROLES = "realm_access.roles"


@pytest.fixture
def issuer() -> Iterator[IdentityProvider]:
    with identity_provider() as provider:
        yield provider


@pytest.fixture
async def users(tmp_path: Path, migrated_database: Path) -> AsyncIterator[Users]:
    database = Database(f"sqlite:///{shutil.copy(migrated_database, tmp_path / 'opensession.db')}")
    yield Users(database)
    database.close()


def logins(issuer: IdentityProvider, users: Users, role_claim: str | None = None, refetch: float = 0.0) -> OidcLogins:
    return OidcLogins(issuer.issuer, AUDIENCE, role_claim, users, ProviderKeys(issuer.issuer, refetch))


async def test_a_token_says_who_it_is_of(issuer: IdentityProvider, users: Users) -> None:
    found = logins(issuer, users)
    assert await found.principal(issuer.token("anna")) == Principal("oidc:anna", Role.MEMBER)
    assert await found.principal(issuer.token("bert", aud=["other", AUDIENCE])) == Principal("oidc:bert", Role.MEMBER)
    assert issuer.fetches == 1, "the keys are kept"


async def test_what_is_wrong_with_a_token_makes_it_none(issuer: IdentityProvider, users: Users) -> None:
    found, now = logins(issuer, users), int(time.time())
    with identity_provider() as stranger:
        stranger.issuer, own = issuer.issuer, stranger.issuer
        foreign = stranger.token("anna")
        stranger.issuer = own
    good = issuer.token("anna")
    for wrong in (
        issuer.token("anna", iss="https://elsewhere.example"),
        issuer.token("anna", aud="another-program"),
        issuer.token("anna", exp=now - LEEWAY_SECONDS - 5),
        issuer.token("anna", nbf=now + LEEWAY_SECONDS + 5),
        issuer.token(""),
        issuer.unsigned("anna"),
        issuer.signed_with_public_key("anna"),
        foreign,
        good[:-8] + ("A" * 8),
        "a.b.c",
    ):
        assert await found.principal(wrong) is None, wrong
    assert await found.principal(issuer.token("anna", exp=now - 5)) is not None, "clocks may differ a little"


async def test_new_keys_are_fetched_and_not_for_every_token(issuer: IdentityProvider, users: Users) -> None:
    eager, bounded = logins(issuer, users), logins(issuer, users, refetch=1000.0)
    for found in (eager, bounded):
        assert await found.principal(issuer.token("anna"))
    issuer.rotate()
    assert await eager.principal(issuer.token("anna"))
    before = issuer.fetches
    assert [await bounded.principal(issuer.token("anna")) for _ in range(5)] == [None] * 5
    assert issuer.fetches == before, "they were fetched just now"


async def test_a_claim_says_the_role(issuer: IdentityProvider, users: Users) -> None:
    found = logins(issuer, users, ROLES)
    roles = {"viewer": Role.VIEWER, "admin": Role.ADMIN}
    for name, role in roles.items():
        token = issuer.token("anna", realm_access={"roles": ["offline", name]})
        assert await found.principal(token) == Principal("oidc:anna", role)
    for without in (
        issuer.token("anna"),
        issuer.token("anna", realm_access={"roles": ["cook"]}),
        issuer.token("anna", realm_access={"roles": {"admin": True}}),
        issuer.token("anna", realm_access={"roles": [["admin"]]}),
        issuer.token("anna", role="admin"),
    ):
        assert await found.principal(without) is None
    plain = logins(issuer, users, "https://example.com/role")
    assert await plain.principal(issuer.token("anna", **{"https://example.com/role": "member"}))


async def test_what_is_stored_of_a_user_of_the_provider_counts(issuer: IdentityProvider, users: Users) -> None:
    await users.add(User("oidc:anna", Role.VIEWER, ("/srv/anna",)))
    await users.add(User("bert", Role.ADMIN))
    found = logins(issuer, users)
    assert await found.principal(issuer.token("anna")) == Principal("oidc:anna", Role.VIEWER, roots=("/srv/anna",))
    assert await found.principal(issuer.token("bert")) == Principal("oidc:bert", Role.MEMBER), "bert is somebody else"


async def test_a_provider_that_is_down_lets_nobody_in_who_needs_its_keys(users: Users) -> None:
    with identity_provider() as issuer:
        known, unknown = logins(issuer, users), logins(issuer, users)
        token = issuer.token("anna")
        assert await known.principal(token)
    assert await known.principal(token) and await unknown.principal(token) is None


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_provider_that_sends_too_much_is_not_read_to_the_end(
    issuer: IdentityProvider, users: Users, caplog: pytest.LogCaptureFixture, encoding: str
) -> None:
    with flooding() as flood:
        flood.sends(lambda: repeated(b" ", 5_000_000), content_encoding=encoding)
        found = OidcLogins(flood.url, "opensession", None, users, ProviderKeys(flood.url, 0.0))
        assert await found.principal(issuer.token("ada")) is None
    assert "more than" in caplog.text or "compressed" in caplog.text
