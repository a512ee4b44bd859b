"""Access control, as plain ASGI, before every route.

- `Host` must name this server, or a page that rebinds its DNS name could talk to it.
- A browser's request from another origin is let in only from the origins that are configured. That a page cannot read an answer
  (CORS) is not enough: to ask can start a directory's MCP servers.
- A body must be declared as JSON, which no page can send across origins without asking first, and has a bounded size.
- Where a login is required (see login.py) every request needs it, but to see that the server is well or what is shared.
"""

import asyncio
import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.audit import WHO
from app.api.errors import Refusal, storage_refusal
from app.api.roles import PRINCIPAL
from app.record.engine import StorageError
from app.users.login import ANYBODY, AcceptedLogin, Login, LoginDenied
from app.users.principal import OPERATOR
from app.util.shared_threads import WORKING_FOR, Owner

# The body of a request as it comes.


BODY_SECONDS = 30.0
"""How long one pause of a client within a body may be, and all of them beyond a second for each BYTES_A_SECOND."""
BYTES_A_SECOND = 32 * 1024
LARGE_BYTES = 256 * 1024
LARGE_AT_ONCE = 2
"""How many bodies of one user larger than LARGE_BYTES are read and parsed at a time; others wait. Each takes several times its
size meanwhile."""
BODY = "opensession.body"
"""The key in a request's scope for its IncomingBody."""
_CLOSE = {"Connection": "close"}
"""For the answer to a body that is not read to its end."""


@dataclass(frozen=True)
class BodyLimit:
    most: int
    setting: str

    @property
    def refusal(self) -> str:
        return f"A body may have at most {self.most} bytes ({self.setting})."


class LargeBodies:
    """Admits the readers of large bodies, a few at a time."""

    def __init__(self) -> None:
        self._of_users: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of_sender(self, scope: Scope) -> asyncio.Semaphore:
        """On a server without users, each address counts for itself."""
        principal, client = scope.get(PRINCIPAL, OPERATOR), scope.get("client")
        name = principal.name or f" {client[0] if client else ''}"
        of_user = self._of_users.get(name)
        if of_user is None:
            of_user = self._of_users[name] = asyncio.Semaphore(LARGE_AT_ONCE)
        return of_user


class IncomingBody:
    def __init__(self, scope: Scope, receive: Receive, limit: BodyLimit, large: LargeBodies) -> None:
        self._scope = scope
        self._receive = receive
        self._limit = limit
        self._large = large
        self._slot: asyncio.Semaphore | None = None
        self._is_complete = False
        self._size = 0
        self._waited = 0.0
        """Seconds in which the server waited for the client."""

    async def receive(self) -> Message:
        """Raises HTTPException for a body that is too large or too slow."""
        if self._is_complete:
            return await self._receive()
        message = await self._in_time()
        self._is_complete = not message.get("more_body", False)
        self._size += len(message.get("body", b""))
        if self._size > self._limit.most:
            raise HTTPException(413, self._limit.refusal, _CLOSE)
        if self._size > LARGE_BYTES and self._slot is None:
            slot = self._large.of_sender(self._scope)
            await slot.acquire()
            self._slot = slot
        return message

    async def _in_time(self) -> Message:
        loop = asyncio.get_running_loop()
        began = loop.time()
        left = BODY_SECONDS + self._size / BYTES_A_SECOND - self._waited
        try:
            async with asyncio.timeout(min(BODY_SECONDS, left)):
                return await self._receive()
        except TimeoutError:
            raise HTTPException(408, "The body came too slowly, or stopped coming.", _CLOSE) from None
        finally:
            self._waited += loop.time() - began

    def parsed(self) -> None:
        """Lets the next large body be read, however long the work with this one takes."""
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.release()


# The guard.


_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_READING = ("GET", "HEAD")


@dataclass(frozen=True)
class Access:
    """`hosts` besides loopback. `any_address`: bound beyond loopback, so that any IP literal may be this server's."""

    hosts: frozenset[str] = frozenset()
    any_address: bool = False
    origins: frozenset[str] = frozenset()
    loopback_origins: bool = False
    """Whether pages of this machine may call, whatever their port."""

    def knows_host(self, header: str | None) -> bool:
        name = _host_name(header)
        if name is None:
            return False
        return name in _LOOPBACK or name in self.hosts or (self.any_address and _is_address(name))

    def knows_origin(self, origin: str, host: str | None) -> bool:
        """Whether the origin is configured, or is this server itself."""
        own = host is not None and self.knows_host(host) and _authority(origin) == host.lower()
        return own or origin in self.origins or (self.loopback_origins and is_loopback_origin(origin))


def _host_name(header: str | None) -> str | None:
    try:
        return urlsplit(f"//{header}").hostname if header else None
    except ValueError:
        return None


def _authority(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


LOOPBACK_ORIGIN = r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d{1,5})?"


def is_loopback_origin(origin: str) -> bool:
    return re.fullmatch(LOOPBACK_ORIGIN, origin) is not None


def is_loopback(hostname: str) -> bool:
    if hostname in _LOOPBACK:
        return True
    return _is_address(hostname) and ipaddress.ip_address(hostname).is_loopback


def is_open(method: str, path: str, query: bytes) -> bool:
    """Whether a request may be made without a login: the health check of this server alone, without `replicas`; reading by a
    share link; and the page with its scripts and styles, which asks for the login itself."""
    if method not in _READING:
        return False
    return (
        path == "/"
        or path.startswith(("/s/", "/page/"))
        or (path == "/global/health" and (not query or "replicas" not in QueryParams(query)))
    )


class Guard:
    """`body`: the bytes that a body may have; `imported`: those of an imported document. FastAPI's own limit (`max_body_size`)
    answers with plain text, whatever a handler says."""

    def __init__(self, app: ASGIApp, access: Access, login: Login, body: BodyLimit, imported: BodyLimit) -> None:
        self._app = app
        self._access = access
        self._login = login
        self._body = body
        self._imported = imported
        self._large_bodies = LargeBodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if scope["type"] == "websocket":
            await (await self._connection_refusal(scope, headers) or self._app)(scope, receive, send)
            return
        if refusal := await self._refusal(scope, headers):
            await refusal(scope, receive, send)
        elif scope["method"] in _READING:
            await self._app(scope, receive, send)  # no route reads the body of a GET
        else:
            await self._with_body(scope, receive, send)

    async def _with_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = IncomingBody(scope, receive, self._limit(scope), self._large_bodies)
        scope[BODY] = body
        try:
            await self._app(scope, body.receive, send)
        finally:
            body.parsed()
            del scope[BODY]

    def _limit(self, scope: Scope) -> BodyLimit:
        return self._imported if scope["path"] == "/session/import" else self._body

    async def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        """None if the request may go on; its principal is noted in the scope."""
        if not self._access.knows_host(headers.get("host")):
            return _foreign_host()
        try:
            admission = await self._admission(scope, headers)
        except StorageError as error:
            return storage_refusal(scope, error)
        match admission:
            case LoginDenied(retry_after=seconds):
                return _denied(seconds, asks_itself=_PAGE in headers)
            case AcceptedLogin(who=who, principal=principal):
                scope[WHO], scope[PRINCIPAL] = who, principal
                WORKING_FOR.set(Owner(principal.name))
        origin = headers.get("origin")
        if origin is None or not self._access.knows_origin(origin, headers.get("host")):
            if origin is not None and scope["method"] not in _READING:
                return _foreign_origin(origin, "write")
            if foreign := _foreign_read(scope, headers):
                return foreign
        return _body_refusal(scope, headers, self._limit(scope))

    async def _connection_refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        """As `_refusal`, for a WebSocket. Another origin may not even read one: its page would be sent what its user may see."""
        host, origin = headers.get("host"), headers.get("origin")
        if not self._access.knows_host(host):
            return _foreign_host()
        if origin is not None and not self._access.knows_origin(origin, host):
            return _foreign_origin(origin, "connect")
        try:
            admission = await self._login.admit_connection(scope, headers.get("authorization"))
        except StorageError as error:
            return storage_refusal(scope, error)
        match admission:
            case None:
                return Refusal(403, "TicketError", "This ticket is for another terminal, was used, or has expired.")
            case LoginDenied(retry_after=seconds):
                return _denied(seconds, asks_itself=False)
            case AcceptedLogin(who=who, principal=principal):
                scope[WHO], scope[PRINCIPAL] = who, principal
        return None

    async def _admission(self, scope: Scope, headers: Headers) -> AcceptedLogin | LoginDenied:
        if is_open(scope["method"], scope["path"], scope.get("query_string", b"")):
            return ANYBODY
        return await self._login.admit(scope, headers.get("authorization"))


def _body_refusal(scope: Scope, headers: Headers, limit: BodyLimit) -> Refusal | None:
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length) > limit.most:
        return Refusal(413, "PayloadTooLargeError", limit.refusal)
    has_body = length != "0" or "transfer-encoding" in headers
    if scope["method"] in _READING or not has_body or _is_json(headers.get("content-type")):
        return None
    return Refusal(415, "UnsupportedMediaTypeError", "A body must be JSON: send the header Content-Type: application/json.")


_PAGE = "x-opensession-page"
"""The page sends this header: it asks for the login itself, instead of the browser."""


def _denied(retry_after: int, *, asks_itself: bool) -> Refusal:
    if retry_after:
        message = f"Too many wrong logins from this address. Try again in {retry_after} s."
        return Refusal(429, "TooManyLoginsError", message, {"Retry-After": str(retry_after)})
    challenge = {"WWW-Authenticate": "Bearer" if asks_itself else 'Basic realm="Secure Area", Bearer'}
    return Refusal(401, "UnauthorizedError", "This server needs a login: its password (basic auth) or a bearer token.", challenge)


def _foreign_host() -> Refusal:
    return Refusal(403, "HostForbiddenError", "This server is not known by that Host. OPENSESSION_PUBLIC_URL names it one.")


_FOREIGN_SITES = frozenset({"cross-site", "same-site"})
_LED_TO = frozenset({"/doc", "/mcp/oauth/callback"})
"""Paths to which a browser comes from another site for good reason: from a sign-in, or by a link. Neither opens a directory."""
_SHOWN_OF_ORIGIN = 200
"""In characters: clients send what they like."""


def _foreign_origin(origin: str, to_do: str) -> Refusal:
    name = f"`{origin[:_SHOWN_OF_ORIGIN]}`"
    local = ", or `loopback`, which lets in every page of this machine" if is_loopback_origin(origin) else ""
    message = f"Pages of {name} may not {to_do} here. OPENSESSION_CORS_ORIGINS lists the origins that may: add {name}{local}."
    return Refusal(403, "OriginForbiddenError", message)


def _foreign_read(scope: Scope, headers: Headers) -> Refusal | None:
    """Refuses what another site's page embeds or links to (`<img src=…>`): `Sec-Fetch-Site` shows it, as there is no `Origin`."""
    path = scope["path"]
    if headers.get("sec-fetch-site") not in _FOREIGN_SITES or path in _LED_TO:
        return None
    if is_open(scope["method"], path, scope.get("query_string", b"")):
        return None
    return Refusal(
        403, "OriginForbiddenError", "Pages of other sites may not read here. OPENSESSION_CORS_ORIGINS lists those that may."
    )


def _is_json(content_type: str | None) -> bool:
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
