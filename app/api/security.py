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
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

from starlette.datastructures import Headers, QueryParams
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.audit import WHO
from app.api.errors import Refusal, storage_refusal
from app.api.roles import PRINCIPAL, principal_of
from app.record.engine import StorageError
from app.users.login import AcceptedLogin, Login, LoginDenied
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


LargeBodies = WeakValueDictionary[str, asyncio.Semaphore]
"""By user, what admits the readers of large bodies. On a server without users, each address counts for itself."""


@dataclass(eq=False)
class IncomingBody:
    """`_waited`: seconds in which the server waited for the client."""

    _scope: Scope
    _receive: Receive
    _limit: BodyLimit
    _large: LargeBodies
    _slot: asyncio.Semaphore | None = None
    _is_complete: bool = False
    _size: int = 0
    _waited: float = 0.0

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
            principal, client = principal_of(self._scope), self._scope.get("client")
            sender = principal.name or f" {client[0] if client else ''}"
            slot = self._large.setdefault(sender, asyncio.Semaphore(LARGE_AT_ONCE))
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
        try:
            name = urlsplit(f"//{header}").hostname if header else None
        except ValueError:
            return False
        return name is not None and (name in _LOOPBACK or name in self.hosts or (self.any_address and _is_address(name)))

    def knows_origin(self, origin: str, host: str | None) -> bool:
        """Whether the origin is configured, or is this server itself."""
        authority = None
        with suppress(ValueError):
            authority = urlsplit(origin).netloc.lower()
        own = host is not None and authority == host.lower() and self.knows_host(host)
        return own or origin in self.origins or (self.loopback_origins and is_loopback_origin(origin))


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
        limit = self._imported if scope["path"] == "/session/import" else self._body
        if refusal := await self._refusal(scope, headers, limit):
            await refusal(scope, receive, send)
            return
        if scope["method"] in _READING:  # no route reads the body of a GET
            await (answer_head(self._app, scope, receive, send) if scope["method"] == "HEAD" else self._app(scope, receive, send))
            return
        body = scope[BODY] = IncomingBody(scope, receive, limit, self._large_bodies)
        name = principal_of(scope).name
        self._login.writing.append(name)
        try:
            await self._app(scope, body.receive, send)
        finally:
            self._login.writing.remove(name)
            body.parsed()
            del scope[BODY]

    async def _refusal(self, scope: Scope, headers: Headers, limit: BodyLimit) -> Refusal | None:
        """None if the request may go on; its principal is noted in the scope."""
        if not self._access.knows_host(headers.get("host")):
            return _FOREIGN_HOST
        needs_login = not is_open(scope["method"], scope["path"], scope.get("query_string", b""))
        if needs_login and (refusal := await _login_refusal(scope, headers, self._login.admit)):
            return refusal
        WORKING_FOR.set(Owner(principal_of(scope).name))
        origin = headers.get("origin")
        if origin is None or not self._access.knows_origin(origin, headers.get("host")):
            if origin is not None and scope["method"] not in _READING:
                return _foreign_origin(origin, "write")
            if needs_login and headers.get("sec-fetch-site") in _FOREIGN_SITES and scope["path"] not in _LED_TO:
                return Refusal(403, "OriginForbiddenError", _FOREIGN_READ)
        return _body_refusal(scope, headers, limit)

    async def _connection_refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        """As `_refusal`, for a WebSocket. Another origin may not even read one: its page would be sent what its user may see."""
        host, origin = headers.get("host"), headers.get("origin")
        if not self._access.knows_host(host):
            return _FOREIGN_HOST
        if origin is not None and not self._access.knows_origin(origin, host):
            return _foreign_origin(origin, "connect")
        return await _login_refusal(scope, headers, self._login.admit_connection)


Admit = Callable[[Scope, str | None], Awaitable[AcceptedLogin | LoginDenied | None]]


async def _login_refusal(scope: Scope, headers: Headers, admit: Admit) -> Refusal | None:
    """None if the login is accepted; it is noted in the scope."""
    try:
        admission = await admit(scope, headers.get("authorization"))
    except StorageError as error:
        return storage_refusal(scope, error)
    match admission:
        case None:
            return Refusal(403, "TicketError", "This ticket is for another terminal, was used, or has expired.")
        case LoginDenied(retry_after=seconds):
            return _denied(seconds, asks_itself=_PAGE in headers)
        case AcceptedLogin(who=who, principal=principal):
            scope[WHO], scope[PRINCIPAL] = who, principal
    return None


async def answer_head(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the head of what `GET` answers, for health checks and programs that follow a link. The HTTP server tells an
    answer that would go on after its head, such as a stream, that its client is gone."""

    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    as_get = {**scope, "method": "GET"}
    try:
        await app(as_get, receive, send_head)
    finally:
        scope.update(as_get, method="HEAD")  # the route, for those who count requests


def _body_refusal(scope: Scope, headers: Headers, limit: BodyLimit) -> Refusal | None:
    length = headers.get("content-length", "0")
    if length.isascii() and length.isdigit() and int(length) > limit.most:
        return Refusal(413, "PayloadTooLargeError", limit.refusal)
    has_body = length != "0" or "transfer-encoding" in headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    is_json = kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))
    if scope["method"] in _READING or not has_body or is_json:
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


_FOREIGN_HOST = Refusal(403, "HostForbiddenError", "This server is not known by that Host. OPENSESSION_PUBLIC_URL names it one.")
_FOREIGN_SITES = frozenset({"cross-site", "same-site"})
"""By `Sec-Fetch-Site`, which shows what another site's page embeds or links to (`<img src=…>`): there is no `Origin` then."""
_LED_TO = frozenset({"/doc", "/mcp/oauth/callback"})
"""Paths to which a browser comes from another site for good reason: from a sign-in, or by a link. Neither opens a directory."""
_FOREIGN_READ = "Pages of other sites may not read here. OPENSESSION_CORS_ORIGINS lists those that may."
_SHOWN_OF_ORIGIN = 200
"""In characters: clients send what they like."""


def _foreign_origin(origin: str, to_do: str) -> Refusal:
    name = f"`{origin[:_SHOWN_OF_ORIGIN]}`"
    local = ", or `loopback`, which lets in every page of this machine" if is_loopback_origin(origin) else ""
    message = f"Pages of {name} may not {to_do} here. OPENSESSION_CORS_ORIGINS lists the origins that may: add {name}{local}."
    return Refusal(403, "OriginForbiddenError", message)
