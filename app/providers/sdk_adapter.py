"""What the adapters of all wire formats share: making and calling the client of a provider's SDK, and bounds on what comes in.

The SDKs' own streams are read, their events as dicts, whose fields an adapter names as the API's documentation does. The SDK's
typed models would take the processor four times as long, and do not fit what unusual servers send. The SDKs gather an event
whatever its size, read JSON of any number of values, and pass on halves of characters, which cannot be stored. So they get each
event when it is complete and checked.
"""

import asyncio
import json
import os
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import httpx2
import orjson

from app import __version__
from app.providers import errors
from app.providers.answers import MAX_ANSWER_BYTES, AnswerSize
from app.providers.base import ApiFailure, MissingKey, ModelRequest, StreamEvent, StreamStart
from app.providers.errors import no_stream
from app.util.bounds import (
    EVENT_ENDS,
    IDENTITY,
    MAX_ERROR_BYTES,
    AnswerPassedLimit,
    parse_json,
    require_few_values,
    require_identity,
    whole_characters,
    whole_events,
)
from app.util.environment import system_tls
from app.util.secrets import secrets_of

if TYPE_CHECKING:
    from openai import AsyncOpenAI

# The provider's output, bounded before an SDK reads it.


_FIELDS = (b"data", b"event", b"id", b"retry", b":")


async def bound_response(response: httpx2.Response) -> None:
    """Reads only the beginning of an answer that is no success. Unpacks nothing: raises AnswerPassedLimit for a success that is
    compressed."""
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    is_compressed = False
    try:
        require_identity(response.headers)
    except AnswerPassedLimit:
        if response.is_success:
            raise
        is_compressed = True
        del response.headers["content-encoding"]
    if response.is_success:
        response.stream = WholeEvents(response.stream, response.status_code, response.headers, str(response.url))
    else:
        response.stream = _Beginning(response.stream, 0 if is_compressed else MAX_ERROR_BYTES)


class WholeEvents(httpx2.AsyncByteStream):
    """The bytes of a stream of events, one whole event at a time. Leaves out events without data, such as a comment, which
    openai's SDK may read as JSON, and a last event that was cut off. Ends before `[DONE]`, the last event of openai's APIs: at
    that the SDK would stop in the middle of six generators, and the loop make a task to close each.

    Raises AnswerPassedLimit; ApiFailure for an answer of another kind: a page, an error in JSON.
    """

    def __init__(self, stream: httpx2.AsyncByteStream, status: int, headers: Mapping[str, str], url: str) -> None:
        self._stream = stream
        self._status = status
        self._headers = headers
        self._url = url
        self._left_out = b""
        self._has_data = False
        self._is_done = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        rest, pieces = b"", whole_events(self._stream)
        async for piece in pieces:
            if piece.endswith(EVENT_ENDS) or _is_whole(piece):
                texts = piece.replace(b"\r\n", b"\n").strip(b"\n").split(b"\n\n")
                yield b"".join([self._event(text.strip(b"\n")) for text in texts])
            else:
                rest = piece
            if self._is_done:
                await _drain(pieces)
                return
        self._require_events(rest)

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _event(self, text: bytes) -> bytes:
        """Empty for an event without data, and after the last one."""
        if self._is_done:
            return b""
        if (text.startswith(b"data:") or b"\ndata:" in text) and (data := text.partition(b"data:")[2].strip()):
            self._has_data = True
            if data == b"[DONE]":
                self._is_done = True
                return b""
            require_few_values(text)
            return whole_characters(text) + b"\n\n"
        if text and not self._has_data:
            self._left_out = (self._left_out + text + b"\n\n")[:MAX_ERROR_BYTES]
        return b""

    def _require_events(self, rest: bytes) -> None:
        body = (self._left_out + rest)[:MAX_ERROR_BYTES]
        if not self._has_data and any(line and not line.startswith(_FIELDS) for line in body.splitlines()):
            raise no_stream(self._status, self._headers, body.decode(errors="replace").strip(), self._url)


class _Beginning(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream = stream
        self._most = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = self._most
        if not left:
            return
        async for chunk in self._stream:
            yield chunk[:left]
            left = max(left - len(chunk), 0)
            if not left:
                return

    async def aclose(self) -> None:
        await self._stream.aclose()


def _is_whole(text: bytes) -> bool:
    """Whether an event without its empty line has all its data."""
    _, name, data = text.rpartition(b"data:")
    try:
        return data.strip() == b"[DONE]" or (bool(name) and isinstance(parse_json(data), dict))
    except ValueError:
        return False


# The SDK's client.


CONNECT_SECONDS = 30.0
IDLE_SECONDS = 120.0
KEEP_ALIVE_SECONDS = 4.0
"""Many servers close an idle connection after five, perhaps while a request is on its way."""

_MAX_IDLE_CONNECTIONS = 20
"""The client looks at each before it sends a request."""
_DRAIN_SECONDS = 0.2
_CONVERSATION = ("messages", "input")

Payload = dict[str, Any]

Headers = dict[str, str | None]
"""By name in lower case. None: the header is not sent, though the SDK would."""


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


class SdkClient(Protocol):
    @property
    def user_agent(self) -> str: ...

    async def close(self) -> None: ...


Client = TypeVar("Client", bound=SdkClient)


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


class SdkAdapter(ABC, Generic[Client]):
    """`options` are the provider's own: `chunkTimeout`, else `timeout`, in milliseconds of silence; false: no limit.
    `most_bytes`: of an answer."""

    path: ClassVar[str]
    """The path of the SDK's requests."""
    sdk: ClassVar[str]
    """The SDK's module for requests."""
    reader: ClassVar[type[Reader]]

    def __init__(
        self,
        provider_id: str,
        *,
        api_key: str | None,
        base_url: str | None,
        headers: dict[str, str],
        options: dict[str, Any],
        idle: float = IDLE_SECONDS,
        most_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self._provider_id = provider_id
        self._api_key = api_key
        self._base_url = base_url
        self._headers = headers
        self._options = options
        self._idle_seconds = idle_seconds(options, idle)
        self._most_bytes = most_bytes
        self._secrets = [*secrets_of({"key": api_key, "url": base_url, "headers": headers, "options": options})]
        self._client: Client | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Emits no StreamStart if the first event is an error. Its errors contain no secret."""
        url = self._address() + self.path
        reader, size, start = self.reader(), AnswerSize(self._most_bytes), [StreamStart()]
        try:
            given = ({**IDENTITY}, self._own_headers(), self._headers, request.headers)
            headers = _sendable({name.lower(): value for each in given for name, value in each.items()}, url)
            client = await self._open_client()
            headers = {"user-agent": f"{client.user_agent} opensession/{__version__}", **headers}
            async with self._send(client, request, headers) as response:
                events = aiter(await self._events(response))
                async for payload in events:
                    for event in (*start, *_read(reader, size, payload, url)):
                        yield event
                    start = []
                    if reader.finished:
                        await _drain(events)
                        break
        except Exception as error:
            failure = errors.failure_of(error, url)
            if failure is None:
                raise
            errors.redact(failure, [*self._secrets, *secrets_of(request.headers, headers=True)])
            raise failure from None  # the SDK's message may quote the request
        for event in (*start, *reader.end()):
            yield event

    @classmethod
    def load(cls) -> None:
        """Imports the SDK: half a second of a processor."""
        import_module(cls.sdk)

    async def close(self) -> None:
        self._closed = True
        async with self._opening:
            client, self._client = self._client, None
        if client is not None:
            await client.close()

    @abstractmethod
    def _address(self) -> str:
        """Raises MissingKey."""

    @abstractmethod
    def _make(self) -> Client:
        """Called in a thread: it may import the SDK, and reads certificates."""

    @abstractmethod
    def _own_headers(self) -> Headers:
        """The wire format's headers, with the key."""

    @abstractmethod
    def _send(self, client: Client, request: ModelRequest, headers: Headers) -> AbstractAsyncContextManager[Any]:
        """At its exit the connection is closed, unless it is free for the next request."""

    @abstractmethod
    async def _events(self, response: Any) -> AsyncIterator[object]:
        """The events of the answer, as the SDK's stream reads them."""

    def _configures(self, header: str) -> bool:
        return any(name.lower() == header for name in self._headers)

    def _http(self) -> dict[str, Any]:
        """Arguments of the SDK's HTTP client, which keeps no cookies: sessions and users share it."""
        from http.cookiejar import CookieJar, DefaultCookiePolicy

        return {
            "timeout": httpx2.Timeout(None, connect=CONNECT_SECONDS, read=self._idle_seconds),
            "limits": httpx2.Limits(max_keepalive_connections=_MAX_IDLE_CONNECTIONS, keepalive_expiry=KEEP_ALIVE_SECONDS),
            "cookies": CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
            "event_hooks": {"response": [bound_response]},
            "verify": system_tls(),
        }

    async def _open_client(self) -> Client:
        async with self._opening:
            if self._closed:
                raise RuntimeError("This provider's connection is closed: its directory was closed.")
            if self._client is None:
                self._client = await asyncio.to_thread(self._load_and_make)
        return self._client

    def _load_and_make(self) -> Client:
        """Raises ApiFailure for a bad address, also of a proxy, whose address may have a password."""
        self.load()
        try:
            return self._make()
        except (ImportError, ValueError):
            raise errors.invalid_address(self._address() + self.path) from None


def sdk_parameters(body: Payload, headers: Headers, omit: object) -> dict[str, Any]:
    """A request as the SDK's parameters take it. `omit`: the SDK's value for None. Dates, NaN and the like, which configurations
    and plugins bring, are sent as JSON can have them; the conversation has none."""
    conversation = {name: body[name] for name in _CONVERSATION if name in body}
    options = {name: value for name, value in body.items() if name not in conversation}
    return {
        "extra_body": {**orjson.loads(orjson.dumps(options, option=orjson.OPT_NON_STR_KEYS)), **conversation},
        "extra_headers": {name: omit if value is None else value for name, value in headers.items()},
    }


def environment_headers(variable: str) -> Headers:
    """The headers that an SDK would send by itself, to whichever server."""
    lines = os.environ.get(variable, "").split("\n")
    return {line.partition(":")[0].strip().lower(): None for line in lines if ":" in line}


def _read(reader: Reader, size: AnswerSize, payload: object, url: str) -> list[StreamEvent]:
    """Raises ApiFailure for a payload that does not have the shape of the API, and AnswerTooLarge."""
    if not isinstance(payload, dict):
        raise errors.unreadable_event(json.dumps(payload).encode(), url)
    try:
        events = reader.read(payload)
        for event in events:
            size.add(event)
    except (AttributeError, LookupError, TypeError) as error:
        problem = f"does not have the API's form ({type(error).__name__}: {error})"
        raise errors.unreadable_event(json.dumps(payload).encode(), url, problem) from error
    return events


async def _drain(events: AsyncIterator[object]) -> None:
    """Reads the rest after the last event, so that the connection can be reused. Errors are ignored: the answer is complete."""
    import anyio

    with suppress(TimeoutError, httpx2.HTTPError, ssl.SSLError, anyio.EndOfStream, AnswerPassedLimit):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in events:
                pass


def _sendable(headers: Headers, url: str) -> Headers:
    if not all(value is None or (value.isascii() and value.isprintable()) for value in headers.values()):
        raise ApiFailure("The API key or a header holds a character that no HTTP header can carry", metadata={"url": url})
    return {name: value and value.strip() for name, value in headers.items()}


class OpenAIAdapter(SdkAdapter["AsyncOpenAI"]):
    """Without a base URL the server is OpenAI's, which needs a key. Elsewhere no key means no Authorization header: a server that
    needs none may refuse a made-up one."""

    def _address(self) -> str:
        if not (self._api_key or self._base_url or self._configures("authorization")):
            raise MissingKey(self._provider_id)
        base_url = self._base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1"
        return base_url.rstrip("/")

    def _own_headers(self) -> Headers:
        """Without the environment's headers for OpenAI's own server."""
        unsent: Headers = {"openai-organization": None, "openai-project": None, **environment_headers("OPENAI_CUSTOM_HEADERS")}
        return {**unsent, "authorization": f"Bearer {self._api_key}" if self._api_key else None}

    def _make(self) -> "AsyncOpenAI":
        from openai import AsyncOpenAI, DefaultAsyncHttpxClient

        return AsyncOpenAI(
            api_key=self._api_key or "none",
            base_url=self._address(),
            max_retries=0,
            http_client=DefaultAsyncHttpxClient(**self._http()),
        )

    async def _events(self, response: Any) -> AsyncIterator[object]:
        from openai import AsyncStream

        events: AsyncIterator[object] = await response.parse(to=AsyncStream[object])
        return events
