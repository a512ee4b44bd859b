"""Authentication: by the password (basic auth), a token of this server or of an identity provider (bearer), a token for one event
stream, or a ticket for one connection to a terminal. Each says who makes the request: a user, or the operator."""

import base64
import hashlib
import hmac
import ipaddress
import logging
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from app.record.engine import StorageError
from app.users.oidc import PREFIX as OIDC_PREFIX
from app.users.oidc import OidcLogins, is_jwt
from app.users.principal import OPERATOR, Principal
from app.users.tokens import LIFETIME_MS, EventTokens, OneTimeTokens, TokenStore
from app.users.users import Users
from app.util.secrets import one_line
from app.util.tasks import FailureLog

if TYPE_CHECKING:
    from limits.aio.strategies import FixedWindowRateLimiter


# Rate limits, counted by the library `limits`: in this server's memory, and in Redis for all servers together.

log = logging.getLogger(__name__)


REDIS_SECONDS = 1.0
"""How long Redis may take for an answer, and for a connection."""
FAILURES = 10
WINDOW_SECONDS = 60.0
LIMIT = f"{FAILURES}/minute"
"""For failed logins of an address."""


class RateLimits:
    """A window begins with the first hit. With Redis this server counts too: its own count holds until Redis answers, and if it
    does not answer."""

    def __init__(self, redis_url: str | None = None) -> None:
        self._redis_url = redis_url
        self._failures = FailureLog(log, "counting in Redis for rate limits")

    async def hit(self, limit: str, *key: str) -> int:
        """Counts one more against `limit` (`30/minute`). Returns 0, or the seconds until there is room again."""
        here = await _seconds_to_wait(self._memory, limit, key, hits=True)
        return max(here, await self._in_redis(limit, key, hits=True))

    async def wait(self, limit: str, *key: str) -> int:
        """Like `hit`, without counting. This server's count is read last, so that it is current when the method returns."""
        together = await self._in_redis(limit, key, hits=False)
        return max(together, await _seconds_to_wait(self._memory, limit, key, hits=False))

    async def _in_redis(self, limit: str, key: tuple[str, ...], *, hits: bool) -> int:
        if self._redis is None:
            return 0
        try:
            seconds = await _seconds_to_wait(self._redis, limit, key, hits=hits)
        except Exception as error:  # noqa: BLE001  of Redis, whatever it is: the limits hold on this server
            self._failures.failed(error)
            return 0
        self._failures.worked()
        return seconds

    @cached_property
    def _memory(self) -> "FixedWindowRateLimiter":
        from limits.aio.storage import MemoryStorage
        from limits.aio.strategies import FixedWindowRateLimiter

        return FixedWindowRateLimiter(MemoryStorage())

    @cached_property
    def _redis(self) -> "FixedWindowRateLimiter | None":
        if self._redis_url is None:
            return None
        from limits.aio.storage import RedisStorage
        from limits.aio.strategies import FixedWindowRateLimiter

        storage = RedisStorage(
            f"async+{self._redis_url}",
            implementation="redispy",
            key_prefix="opensession",
            socket_timeout=REDIS_SECONDS,
            socket_connect_timeout=REDIS_SECONDS,
        )
        return FixedWindowRateLimiter(storage)


async def _seconds_to_wait(limiter: "FixedWindowRateLimiter", limit: str, key: tuple[str, ...], *, hits: bool) -> int:
    from limits import parse

    item = parse(limit)
    if await (limiter.hit if hits else limiter.test)(item, *key):
        return 0
    seconds = (await limiter.get_window_stats(item, *key)).reset_time - time.time()
    if seconds > item.get_expiry() + 1:  # the clock was put back: the window would last as much longer
        await limiter.clear(item, *key)
        return await _seconds_to_wait(limiter, limit, key, hits=hits)
    return max(1, math.ceil(seconds))


def _network(address: str) -> str:
    """Groups IPv6 addresses by /64, because one client has a whole /64."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))


ANYONE = "anyone"
TICKET_SECONDS = 60
_CONNECT = re.compile(r"(?:/api)?/pty/([^/]+)/connect")
STREAMS = ("/event", "/global/event", "/api/event")


def connected_terminal(path: str) -> str | None:
    """The terminal that a path connects to."""
    found = _CONNECT.fullmatch(path)
    return found[1] if found else None


@dataclass(frozen=True, slots=True)
class AcceptedLogin:
    """`who` is recorded in the audit log."""

    who: str
    principal: Principal = OPERATOR


NO_LOGIN_NEEDED = AcceptedLogin(ANYONE)


@dataclass(frozen=True, slots=True)
class LoginDenied:
    """`retry_after`: seconds for which the address is refused, 0 if it may try again at once."""

    retry_after: int = 0


class Login:
    """A login is needed if there is a password, a token, a user or an identity provider. It stays needed while the server runs,
    whatever becomes of the tokens' file: a server that was closed does not open by itself."""

    def __init__(
        self,
        username: str,
        password: str | None,
        tokens: TokenStore,
        rates: RateLimits | None = None,
        event_tokens: EventTokens | None = None,
        users: Users | None = None,
        oidc: OidcLogins | None = None,
    ) -> None:
        self._username = username
        self._password = _digest(f"{username}:{password}".encode()) if password is not None else None
        self._tokens = tokens
        self._rates = rates or RateLimits()
        self._users = users
        self._oidc = oidc
        self._required = password is not None or oidc is not None
        self.event_tokens = event_tokens or OneTimeTokens[Principal](LIFETIME_MS)
        self.connect_tickets = OneTimeTokens[tuple[str, Principal]](TICKET_SECONDS * 1000)
        """Each opens the terminal of an id, with its user's login."""
        self.writing: list[str] = []
        """The users of the requests that may change something and have not ended: their logins are not asked for again."""

    def is_required(self) -> bool:
        self._required = self._required or self._tokens.in_use()
        return self._required

    async def admit(self, scope: Mapping[str, Any], authorization: str | None) -> AcceptedLogin | LoginDenied:
        """Like `check`, but a request without a login may have a token for one event stream. Raises StorageError."""
        checked = await self.check(scope, authorization)
        if isinstance(checked, LoginDenied) and not _split(authorization)[0] and (principal := await self._redeemed(scope)):
            return AcceptedLogin("event token", principal)
        return checked

    async def admit_connection(self, scope: Mapping[str, Any], authorization: str | None) -> AcceptedLogin | LoginDenied | None:
        """For a WebSocket: by its ticket, if it has one, else as `check`. None for a ticket that is unknown, used or expired,
        or is for another terminal."""
        tickets = parse_qs(scope["query_string"].decode("latin-1")).get("ticket")
        if tickets is None:
            return await self.check(scope, authorization)
        pty_id, principal = await self.connect_tickets.redeem(tickets[-1]) or (None, OPERATOR)
        if pty_id is None or pty_id != connected_terminal(scope["path"]):
            _log_refused(scope, "its connect ticket does not hold")
            return None
        return AcceptedLogin(f"user {principal.name}, connect ticket" if principal.name else "connect ticket", principal)

    async def check(self, scope: Mapping[str, Any], authorization: str | None) -> AcceptedLogin | LoginDenied:
        """Checks the `Authorization` header. `scope`: the request's (ASGI). A valid token is let in even from an address that
        failed too often: it cannot be guessed, and others at a guesser's address are not locked out."""
        if not self.is_required():
            return NO_LOGIN_NEEDED
        scheme, credentials = _split(authorization)
        if not scheme:
            return LoginDenied()
        by_token = await self._by_token(credentials) if scheme == "bearer" else None
        checked = by_token or await self._by_password(scheme, credentials, _address(scope))
        if isinstance(checked, LoginDenied):
            level = logging.DEBUG if checked.retry_after else logging.WARNING  # many of them are one event
            _log_refused(scope, f"its {scheme[:20]} credentials do not hold", level)
        return checked

    async def still_holds(self, authorization: str | None, principal: Principal) -> bool:
        """Whether the login that a stream was opened with is still valid for its principal. If the database or the file of tokens
        cannot be read now, it is."""
        scheme, credentials = _split(authorization)
        try:
            if scheme == "bearer" and self.is_required():
                by_token = await self._by_token(credentials)
                return isinstance(by_token, AcceptedLogin) and by_token.principal == principal
            if principal.token and not self._tokens.is_valid(principal.token):
                return False
            if principal.name and self._users and not principal.name.startswith(OIDC_PREFIX):
                user = await self._users.get(principal.name)
                return user is not None and user.principal(read_only=principal.read_only) == principal
        except (StorageError, OSError) as error:
            log.warning("whether the login of a stream still holds could not be read: %s", error)
        return True

    async def _by_token(self, token: str) -> AcceptedLogin | LoginDenied | None:
        """None for what is no token: it counts as a guess at a password. An invalid token of an identity provider does not, as
        many users may share an address."""
        if self._oidc is not None and is_jwt(token):
            principal = await self._oidc.principal(token)
            return AcceptedLogin(f"user {principal.name}", principal) if principal else LoginDenied()
        entry = self._tokens.find(token)
        if entry is None:
            return None
        if entry.user is None:
            return AcceptedLogin(f"token {entry.name}", replace(OPERATOR, read_only=entry.read_only, token=entry.hash))
        user = await self._users.get(entry.user) if self._users else None
        if user is None:
            return LoginDenied()
        principal = replace(user.principal(read_only=entry.read_only), token=entry.hash)
        return AcceptedLogin(f"user {user.name}, token {entry.name}", principal)

    async def _by_password(self, scheme: str, credentials: str, address: str) -> AcceptedLogin | LoginDenied:
        """After FAILURES wrong logins an address may not try again until WINDOW_SECONDS after the first of them."""
        network = _network(address)
        wait = await self._rates.wait(LIMIT, "login", network)
        if wait:
            return LoginDenied(wait)
        if scheme == "basic" and self._is_password(credentials):
            return AcceptedLogin(self._username)
        await self._rates.hit(LIMIT, "login", network)
        wait = await self._rates.wait(LIMIT, "login", network)
        if wait:
            log.warning("logins of %s are refused for %d s: too many were wrong", address, wait)
        return LoginDenied(wait)

    def _is_password(self, credentials: str) -> bool:
        """Compares digests, so that the time reveals nothing, not even a length."""
        given = _digest(_decoded(credentials))
        return self._password is not None and hmac.compare_digest(given, self._password)

    async def _redeemed(self, scope: Mapping[str, Any]) -> Principal | None:
        if scope["method"] != "GET" or scope["path"] not in STREAMS:
            return None
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [])
        principal = await self.event_tokens.redeem(given[0]) if len(given) == 1 else None
        if given and principal is None:
            _log_refused(scope, "its event token does not hold")
        return principal


def _digest(login: bytes) -> bytes:
    return hashlib.sha256(login).digest()


def _split(authorization: str | None) -> tuple[str, str]:
    scheme, _, credentials = (authorization or "").strip().partition(" ")
    return scheme.lower(), credentials.strip()


def _decoded(credentials: str) -> bytes:
    try:
        return base64.b64decode(credentials, validate=True)
    except ValueError:
        return b""


def _log_refused(scope: Mapping[str, Any], reason: str, level: int = logging.WARNING) -> None:
    """Without the given credentials, which may be nearly right. A WebSocket has no method."""
    wanted = f"{scope.get('method', 'WebSocket')} {scope['path']}"
    log.log(level, "%s", one_line(f"a login of {_address(scope) or 'an unknown address'} was refused for {wanted}: {reason}"))


def _address(scope: Mapping[str, Any]) -> str:
    client = scope.get("client")
    return client[0] if client else ""
