"""Sends a request to a provider and reads the answer as a stream of events.

By aiohttp, without the providers' SDKs: these take 16 and 41 MB of memory and a second of the first answer, build a request three
times over and make each chunk into typed objects, of which nothing but an address and two headers would be used.
"""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from app import __version__
from app.provider.base import ProviderFailure, StreamEvent, StreamStart
from app.provider.secrets import redact
from app.provider.wire import errors
from app.provider.wire.sse import SseDecoder, parse_json
from app.util.bounded_answer import IDENTITY, MAX_ERROR_BYTES, AnswerPassedLimit, EventBytes, require_few_values, require_identity
from app.util.secrets import secrets_of

if TYPE_CHECKING:
    import aiohttp
    from multidict import CIMultiDict

CONNECT_SECONDS = 30.0
IDLE_SECONDS = 120.0
KEEP_ALIVE_SECONDS = 4.0
"""Many servers close an idle connection after five, perhaps while a request is on its way."""
_HEADERS = {
    "Accept": "application/json",
    "Content-Type": "application/json",
    "User-Agent": f"opensession/{__version__}",
    **IDENTITY,
}
_DRAIN_SECONDS = 0.2
_DONE = b"[DONE]"

Payload = dict[str, Any]


def idle_seconds(options: Mapping[str, Any], default: float) -> float | None:
    """The idle timeout from the option `chunkTimeout`, else `timeout`: milliseconds without data, or false for no limit."""
    match options.get("chunkTimeout", options.get("timeout")):
        case False:
            return None
        case True | None:
            return default
        case int() | float() as milliseconds:
            return milliseconds / 1000
        case _:
            return default


@dataclass(frozen=True, slots=True)
class ProviderAddress:
    """Where a provider's requests go, and the headers of all of them."""

    base_url: str
    headers: Mapping[str, str]


MakeAddress = Callable[[], ProviderAddress]


def _closed() -> ProviderAddress:
    raise RuntimeError("This provider's connection is closed: its directory was closed.")


class ProviderConnection:
    """Opens at the first request, in a thread: importing aiohttp, which reads the certificates, takes a tenth of a second."""

    def __init__(self, make: MakeAddress, *, idle_seconds: float | None, secrets: Sequence[str] = ()) -> None:
        """`secrets`: what a failure must not tell."""
        self._make = make
        self.secrets = secrets
        self._idle_seconds = idle_seconds
        self._open: tuple[aiohttp.ClientSession, ProviderAddress] | None = None
        self._opening = asyncio.Lock()

    async def post(self, path: str, body: Payload, headers: Mapping[str, str]) -> "ProviderStream":
        """Raises a ProviderFailure."""
        return ProviderStream(await self._send(path, body, headers))

    async def close(self) -> None:
        """Drops what makes the client, too: in a cycle, megabytes would wait for the garbage collector."""
        self._make = _closed
        async with self._opening:
            opened, self._open = self._open, None
        if opened is not None:
            await opened[0].close()

    async def _send(self, path: str, body: Payload, headers: Mapping[str, str]) -> "aiohttp.ClientResponse":
        session, address = self._open or await self._opened()
        url = address.base_url + path
        content = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS)
        try:
            response = await session.post(url, data=content, headers=_sendable(address.headers, headers, url))
            if response.status < 400:
                require_identity(response.headers)
                return response
            refusal = await _error_body(response)
        except Exception as error:
            if failure := errors.failure_of(error, url):
                raise failure from error
            raise
        raise errors.answered(response.status, response.headers, refusal, url)

    async def _opened(self) -> "tuple[aiohttp.ClientSession, ProviderAddress]":
        async with self._opening:
            if self._open is None:
                address = self._make()
                make_connector = await asyncio.to_thread(_connector)
                self._open = self._session(make_connector(), address.base_url), address
        return self._open

    def _session(self, connector: "aiohttp.TCPConnector", base_url: str) -> "aiohttp.ClientSession":
        import aiohttp

        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=self._idle_seconds),
            proxy=proxy_for(base_url),
        )


def _connector() -> "Callable[[], aiohttp.TCPConnector]":
    """What makes it on the loop. It trusts what aiohttp has read already: the system's certificates, or what SSL_CERT_FILE and
    SSL_CERT_DIR name; certifi's where a Python knows no place of them."""
    import aiohttp
    import certifi

    known = ssl.get_default_verify_paths()
    tls = True if known.cafile or known.capath else ssl.create_default_context(cafile=certifi.where())
    return partial(aiohttp.TCPConnector, limit=0, keepalive_timeout=KEEP_ALIVE_SECONDS, ssl=tls)


def proxy_for(url: str) -> str | None:
    """As the environment says: HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY. As other programs take it, `host:port` is enough."""
    address, proxies = urlsplit(url), getproxies()
    proxy = None if proxy_bypass(address.netloc) else proxies.get(address.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


async def _error_body(response: "aiohttp.ClientResponse") -> str:
    """As much of it as is kept; nothing of one that is compressed."""
    body = b""
    with suppress(AnswerPassedLimit):
        require_identity(response.headers)
        while len(body) < MAX_ERROR_BYTES and (chunk := await response.content.read(MAX_ERROR_BYTES - len(body))):
            body += chunk
    if not response.content.at_eof():
        response.close()
    return body.decode(errors="replace")


def _sendable(given: Mapping[str, str], own: Mapping[str, str], url: str) -> "CIMultiDict[str]":
    from multidict import CIMultiDict

    headers: CIMultiDict[str] = CIMultiDict()
    for name, value in (*_HEADERS.items(), *given.items(), *own.items()):
        headers[name] = value
    if not all(value.isascii() and value.isprintable() for value in headers.values()):
        raise errors.unsendable_header(url)
    return headers


class ProviderStream:
    """The events of an answer, as many at a time as have come, until `[DONE]` or its end."""

    def __init__(self, response: "aiohttp.ClientResponse") -> None:
        self._response = response
        self._bytes = EventBytes()
        self._decoder = SseDecoder()
        self._start: tuple[StreamStart, ...] = (StreamStart(),)
        self._any = False
        self.ended = False

    async def read(self) -> list[bytes]:
        """The data of those that have come since. Raises a ProviderFailure."""
        try:
            chunk = await self._response.content.readany()
            self._bytes.add(chunk)
        except Exception as error:
            if failure := errors.failure_of(error, self._url):
                raise failure from error
            raise
        came = self._decoder.feed(chunk) if chunk else self._end()
        if _DONE in came:
            self.ended = True
            came = came[: came.index(_DONE)]
        self._any = self._any or bool(came)
        return came

    def translate(self, came: list[bytes], reader: "Reader") -> Iterator[StreamEvent]:
        for data in came:
            events = reader.read(self._parse(data))
            yield from self.start()
            yield from events
            if reader.finished:
                return

    def start(self) -> Iterable[StreamStart]:
        """Once."""
        start, self._start = self._start, ()
        return start

    async def drain(self) -> None:
        """Reads the rest after the last event, so that the connection can be reused. Errors are ignored: the answer is
        complete."""
        if self._response.content.at_eof():
            return
        import aiohttp

        with suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while not self._response.content.at_eof():
                    await self._response.content.readany()

    def close(self) -> None:
        """Closes the connection, unless it is free for the next request."""
        self._response.close()

    def _parse(self, data: bytes) -> Payload:
        try:
            require_few_values(data)
        except AnswerPassedLimit as passed:
            raise errors.passed_limit(passed, self._url) from passed
        payload = _object(data)
        if payload is None:
            raise errors.unreadable_event(data, self._url)
        return payload

    def _end(self) -> list[bytes]:
        """Accepts a complete last event without its empty line."""
        self.ended = True
        last = self._decoder.close()
        if last is not None and _object(last) is not None:
            return [last]
        if not self._any and self._decoder.stray:
            body = self._decoder.stray.decode(errors="replace").strip()
            raise errors.no_stream(self._response.status, self._response.headers, body, self._url)
        return []

    @property
    def _url(self) -> str:
        return str(self._response.url)


def _object(data: bytes) -> Payload | None:
    try:
        value = parse_json(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


class Reader(Protocol):
    """Translates the events of one answer. `finished` is true after the last relevant one."""

    @property
    def finished(self) -> bool: ...

    def read(self, payload: Payload) -> list[StreamEvent]:
        """Raises an ApiFailure for an error event."""
        ...

    def end(self) -> list[StreamEvent]:
        """Ends the open blocks; adds a Finish if the provider sent a finish reason."""
        ...


async def converse(
    connection: ProviderConnection, path: str, body: Payload, headers: dict[str, str], reader: Reader
) -> AsyncGenerator[StreamEvent, None]:
    """Emits no StreamStart if the first event is an error. What it raises tells no secret."""
    answer: ProviderStream | None = None
    try:
        answer = await connection.post(path, body, headers)
        while not (answer.ended or reader.finished):
            for event in answer.translate(await answer.read(), reader):
                yield event
        await answer.drain()
    except ProviderFailure as failure:
        redact(failure, [*connection.secrets, *secrets_of(headers, headers=True)])
        raise
    finally:
        if answer is not None:
            answer.close()
    for event in (*answer.start(), *reader.end()):
        yield event
