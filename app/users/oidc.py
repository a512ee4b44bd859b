"""Bearer tokens of an identity provider (OpenID Connect): the users of its JSON Web Tokens.

Signatures are checked against the provider's published keys, which are fetched again when they are old, or when a token names an
unknown one, but at most every REFETCH_SECONDS. PyJWT does the cryptography; it is imported with the first token.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from app.users.principal import Principal, Role, highest_role
from app.users.users import Users
from app.util.bounds import IDENTITY, body_of, require_few_values, require_identity
from app.util.tasks import FailureLog

if TYPE_CHECKING:
    import httpx2
    from jwt import PyJWK

log = logging.getLogger(__name__)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Only asymmetric ones: with the others, the public key would be enough to make a token."""
LEEWAY_SECONDS = 60
KEYS_MAX_AGE_SECONDS = 600.0
REFETCH_SECONDS = 10.0
TIMEOUT_SECONDS = 10.0
MAX_BYTES = 1_000_000
"""Of what the provider publishes."""
PREFIX = "oidc:"
"""Before the names of the provider's users, so that none is taken for a user of `opensession user`."""


class ProviderKeys:
    """The identity provider's public keys by their id."""

    def __init__(self, issuer: str, refetch_seconds: float = REFETCH_SECONDS) -> None:
        self._issuer = issuer
        self._refetch_seconds = refetch_seconds
        self._keys: dict[str | None, PyJWK] = {}
        self._fetched_at = self._tried_at = float("-inf")
        self._fetching = asyncio.Lock()
        self._failures = FailureLog(log, f"fetching the keys of {issuer}")

    async def get(self, key_id: str | None) -> "PyJWK | None":
        if self._is_due(key_id):
            async with self._fetching:
                if self._is_due(key_id):
                    await self._refresh()
        return self._keys.get(key_id)

    def _is_due(self, key_id: str | None) -> bool:
        now = time.monotonic()
        is_wanted = key_id not in self._keys or now - self._fetched_at > KEYS_MAX_AGE_SECONDS
        return is_wanted and now - self._tried_at > self._refetch_seconds

    async def _refresh(self) -> None:
        """Keeps the present keys if the provider does not answer."""
        self._tried_at = time.monotonic()
        try:
            self._keys = await self._fetch()
        except Exception as error:  # noqa: BLE001  whatever is wrong with the provider, its users cannot log in now
            self._failures.failed(error)
            return
        self._fetched_at = time.monotonic()
        self._failures.worked()

    async def _fetch(self) -> "dict[str | None, PyJWK]":
        import httpx2

        async with httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, headers=IDENTITY) as client:
            discovered = await _json(client, self._issuer.rstrip("/") + "/.well-known/openid-configuration")
            if discovered.get("issuer") != self._issuer:
                raise ValueError(f"it names another issuer: {discovered.get('issuer')!r}")
            keys_url = str(discovered["jwks_uri"])
            if urlsplit(keys_url).scheme != "https" and urlsplit(self._issuer).scheme == "https":
                raise ValueError(f"its jwks_uri is not https: {keys_url}")
            return _signing_keys(await _json(client, keys_url))


async def _json(client: "httpx2.AsyncClient", url: str) -> dict[str, Any]:
    async with client.stream("GET", url) as response:
        response.raise_for_status()
        require_identity(response.headers)
        body = await body_of(response.aiter_raw(), MAX_BYTES)
    require_few_values(body)
    answer = orjson.loads(body)
    if not isinstance(answer, dict):
        raise ValueError(f"{url} answered no JSON object")
    return answer


def _signing_keys(published: dict[str, Any]) -> "dict[str | None, PyJWK]":
    """Without keys for other uses, or of an unknown kind."""
    from jwt import PyJWKSet, PyJWKSetError

    try:
        keys = PyJWKSet.from_dict(published).keys
    except PyJWKSetError:  # no usable one: the provider has withdrawn them
        return {}
    return {key.key_id: key for key in keys if key.algorithm_name in ALGORITHMS and key.public_key_use in (None, "sig")}


class OidcLogins:
    def __init__(
        self, issuer: str, audience: str, role_claim: str | None, users: Users, keys: ProviderKeys | None = None
    ) -> None:
        self._issuer = issuer
        self._audience = audience
        self._role_claim = role_claim
        self._users = users
        self._keys = keys or ProviderKeys(issuer)

    async def principal(self, token: str) -> Principal | None:
        """None for an invalid token, or one without a role of ours. Roots and limits are those of `opensession user add
        oidc:SUBJECT`, if there is one; so is the role if no claim is configured for it."""
        claims = await self._claims(token)
        if claims is None:
            return None
        name = PREFIX + claims["sub"]
        user = await self._users.get(name)
        role: Role | None = user.role if user else Role.MEMBER
        if self._role_claim is not None:
            claimed = _claim(claims, self._role_claim)
            role = highest_role(claimed if isinstance(claimed, list) else [claimed])
        return Principal(name, role, roots=user.roots if user else ()) if role else None

    async def _claims(self, token: str) -> dict[str, Any] | None:
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            key = await self._keys.get(header.get("kid")) if header.get("alg") in ALGORITHMS else None
            if key is None or key.algorithm_name != header["alg"]:
                return None
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            if not claims["sub"] or len(claims["sub"]) > 200:
                raise jwt.InvalidTokenError("its subject is empty or longer than 200 characters")
            return claims
        except jwt.InvalidTokenError as error:
            log.info("a token of %s was refused: %s", self._issuer, error)
            return None


def is_jwt(token: str) -> bool:
    return token.count(".") == 2


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """`realm_access.roles` is a claim within another, unless there is a claim of just that name."""
    if name in claims:
        return claims[name]
    value: Any = claims
    for step in name.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    return value
