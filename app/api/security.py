"""Who may talk to the server: checked on every route before anything else, as plain ASGI.

- `Host` must name this server, or a page that rebinds its DNS name could talk to it.
- A browser's request from another origin is let in only from the origins that are configured, and only those are told so (CORS).
- A body must be declared as JSON, which no page can send across origins without asking first.
- With OPENCODE_SERVER_PASSWORD set, every request needs it (basic auth), but to see that the server is well or what is shared.
"""

import base64
import binascii
import hmac
import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response

from app.api.errors import named

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_METHODS = "GET,HEAD,PUT,POST,DELETE,PATCH"
_READING = ("GET", "HEAD")
MAX_BODY_BYTES = 32 * 1024 * 1024
TOO_LARGE = f"A body may have at most {MAX_BODY_BYTES} bytes."


@dataclass(frozen=True)
class Access:
    """`hosts` besides loopback; `any_address`: bound beyond loopback, so that any IP literal may be this server's."""

    hosts: frozenset[str] = frozenset()
    any_address: bool = False
    origins: frozenset[str] = frozenset()
    username: str = "opencode"
    password: str | None = None

    def knows_host(self, header: str | None) -> bool:
        name = _host_name(header)
        if name is None:
            return False
        return name in _LOOPBACK or name in self.hosts or (self.any_address and _is_address(name))

    def knows_origin(self, origin: str, host: str | None) -> bool:
        """Configured, or the page comes from this server itself."""
        return origin in self.origins or (host is not None and _authority(origin) == host.lower())

    def admits(self, authorization: str | None) -> bool:
        if self.password is None:
            return True
        given = _credentials(authorization)
        expected = f"{self.username}:{self.password}".encode()
        return hmac.compare_digest(given, expected)


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


def is_loopback(hostname: str) -> bool:
    if hostname in _LOOPBACK:
        return True
    return _is_address(hostname) and ipaddress.ip_address(hostname).is_loopback


def is_open(method: str, path: str) -> bool:
    """Whether a request may be made without the password: the health check, and reading by a share link."""
    return method in _READING and (path == "/global/health" or path.startswith("/s/"))


def _credentials(authorization: str | None) -> bytes:
    scheme, _, encoded = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return b""


class Guard:
    def __init__(self, app: App, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        listed = origin is not None and self._access.knows_origin(origin, headers.get("host"))
        refusal = self._refusal(scope["method"], scope["path"], headers, origin, listed)
        if listed and origin is not None:
            send = _with_cors(send, origin, headers.get("access-control-request-headers"))
        if refusal is not None:
            await refusal(scope, receive, send)
        elif origin is not None and scope["method"] == "OPTIONS":
            await Response(status_code=204)(scope, receive, send)
        else:
            await self._app(scope, _bounded(receive), send)

    def _refusal(self, method: str, path: str, headers: Headers, origin: str | None, listed: bool) -> Response | None:
        access = self._access
        if not access.knows_host(headers.get("host")):
            return named(403, "HostForbiddenError", "This server is not known by that Host. OPENSESSION_PUBLIC_URL names it one.")
        if not is_open(method, path) and not access.admits(headers.get("authorization")):
            challenge = {"WWW-Authenticate": 'Basic realm="Secure Area"'}
            return named(401, "UnauthorizedError", "This server needs its username and password (basic auth).", challenge)
        if method == "OPTIONS":
            return None
        if origin is not None and not listed and method not in _READING:
            return named(
                403,
                "OriginForbiddenError",
                "Pages of that origin may not write here. OPENSESSION_CORS_ORIGINS lists those that may.",
            )
        return _body_refusal(method, headers)


def _body_refusal(method: str, headers: Headers) -> Response | None:
    length = headers.get("content-length")
    if length is not None and length.isascii() and length.isdigit() and int(length) > MAX_BODY_BYTES:
        return named(413, "PayloadTooLargeError", TOO_LARGE)
    has_body = (length not in (None, "0")) or "transfer-encoding" in headers
    if method in _READING or not has_body or _is_json(headers.get("content-type")):
        return None
    return named(415, "UnsupportedMediaTypeError", "A body must be JSON: send the header Content-Type: application/json.")


def _is_json(content_type: str | None) -> bool:
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


def _bounded(receive: Receive) -> Receive:
    """A body without a declared length is counted as it comes."""
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > MAX_BODY_BYTES:
            raise HTTPException(413, TOO_LARGE)
        return message

    return counted


def _with_cors(send: Send, origin: str, wanted_headers: str | None) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            extra = [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-allow-methods", _METHODS.encode()),
                (b"access-control-expose-headers", b"X-Next-Cursor"),
                (b"vary", b"Origin"),
            ]
            if wanted_headers:
                extra.append((b"access-control-allow-headers", wanted_headers.encode("latin-1")))
            message = {**message, "headers": [*message.get("headers", []), *extra]}
        await send(message)

    return sending
