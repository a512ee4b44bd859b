"""The API as clients use it, for the commands and for MCP, which speak to a server as any client does, or to one in this process:
calls over httpx2 whose errors are sentences, a directory's events, resumed automatically, and how a prompt ended."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import httpx2
import orjson
from starlette.types import ASGIApp, Message, Scope

Json = dict[str, Any]

RECONNECT_SECONDS = 30.0
"""Seconds for which reconnecting is tried, from the loss of a connection on, which a silence shows late."""
_PAUSE_SECONDS = 0.5
_LARGE_TIMEOUT = httpx2.Timeout(30, read=900)
"""For sessions with all their messages, which are read, checked and stored as a whole before there is an answer."""

_TURN_TIMEOUT = httpx2.Timeout(30, read=None)

_SILENCE_SECONDS = 60.0
"""A connection that waits counts as lost after so long without anything, not even a sign of life from the server."""


class ApiRefused(Exception):
    """The server refused a request, or cannot be reached. Its text is for the user. `status` is 0 without an answer."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class ApiClient:
    """`name` is how messages call the server. `resumes`: a stream of events that is lost is opened anew."""

    def __init__(self, http: httpx2.AsyncClient, name: str, *, resumes: bool = True) -> None:
        self._http = http
        self._name = name
        self._resumes = resumes
        self.refusal: Callable[[str, int], Exception] = ApiRefused
        """Makes the error that is raised, of its text and the HTTP status (0 without an answer)."""

    async def get(self, path: str, /, **query: Any) -> Any:
        return await self._call("GET", path, None, query)

    async def post(self, path: str, /, body: Any = None, **query: Any) -> Any:
        return await self._call("POST", path, body, query)

    async def post_slow(self, path: str, /, body: Any, **query: Any) -> Any:
        """For requests that are answered when a turn is over."""
        return await self._call("POST", path, body, query, timeout=_TURN_TIMEOUT)

    async def wait(self, path: str, begun: Callable[[], None]) -> Any:
        """Waits until the server has something to say, and returns it. `begun` is called when that wait has begun."""
        timeout = httpx2.Timeout(30, read=_SILENCE_SECONDS)
        try:
            async with self._http.stream("GET", path, timeout=timeout) as answer:
                begun()
                body = await answer.aread()
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        if answer.is_error:
            raise self._refused(answer.status_code, body)
        return orjson.loads(body)

    async def patch(self, path: str, /, body: Any, **query: Any) -> Any:
        return await self._call("PATCH", path, body, query)

    async def delete(self, path: str) -> Any:
        return await self._call("DELETE", path, None, {})

    async def upload(self, path: str, content: bytes, **query: Any) -> Any:
        """`content` is JSON."""
        headers = {"content-type": "application/json"}
        return await self._call("POST", path, None, query, content=content, headers=headers, timeout=_LARGE_TIMEOUT)

    async def download(self, path: str, **query: Any) -> AsyncGenerator[bytes, None]:
        """The answer in pieces, however large it is."""
        try:
            async with self._http.stream("GET", path, params=query, timeout=_LARGE_TIMEOUT) as answer:
                if answer.is_error:
                    raise self._refused(answer.status_code, await answer.aread())
                async for piece in answer.aiter_bytes():
                    yield piece
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error

    async def _call(self, method: str, path: str, body: Any, query: Json, **options: Any) -> Any:
        try:
            answer = await self._http.request(method, path, json=body, params=query or None, **options)
        except httpx2.TransportError as error:
            raise self._unreachable(error) from error
        if answer.has_redirect_location:
            address = answer.headers["location"]
            raise self.refusal(f"{self._name} leads on to {address}: name that address.", answer.status_code)
        if answer.is_error:
            raise self._refused(answer.status_code, answer.content)
        try:
            return orjson.loads(answer.content) if answer.content.strip() else None
        except orjson.JSONDecodeError:
            raise self.refusal(f"{self._name} answers {method} {path} with no JSON: it is another program's.", 0) from None

    def _unreachable(self, error: Exception) -> Exception:
        return self.refusal(f"{self._name} cannot be reached: {error or type(error).__name__}", 0)

    def _refused(self, status: int, body: bytes) -> Exception:
        if status == 401:
            hint = "set OPENSESSION_TOKEN, or OPENCODE_SERVER_PASSWORD (and OPENCODE_SERVER_USERNAME)"
            return self.refusal(f"{self._name} needs a login: {hint}.", status)
        return self.refusal(_message(body) or f"{self._name} answered with {status}", status)

    async def events(self, directory: str) -> AsyncGenerator[Json, None]:
        """The events of a directory; the first is `server.connected`. Raises what `refusal` makes when the server is lost."""
        cursor = ""
        lost_at: float | None = None
        while True:
            lost: Exception | None = None
            try:
                async for frame in self._stream(directory, cursor):
                    cursor, lost_at = frame[0], None
                    yield frame[1]
            except httpx2.TransportError as error:
                lost = self._unreachable(error)
            lost_at = time.monotonic() if lost_at is None else lost_at
            if not self._resumes or time.monotonic() - lost_at > RECONNECT_SECONDS:
                raise lost or self.refusal(f"{self._name} has ended the stream of events.", 0)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _stream(self, directory: str, cursor: str) -> AsyncIterator[tuple[str, Json]]:
        """Each event with the newest id in the stream. An id without data is of no event."""
        query, headers = {"directory": directory, "parts": "delta"}, {"last-event-id": cursor}
        timeout = httpx2.Timeout(30, read=_SILENCE_SECONDS)
        async with self._http.stream("GET", "/event", params=query, headers=headers, timeout=timeout) as answer:
            if answer.is_server_error:
                raise httpx2.RemoteProtocolError(f"it answers with {answer.status_code}")  # the server stops, or starts
            if answer.is_error:
                raise self._refused(answer.status_code, await answer.aread())
            async for sent in httpx2.EventSource(answer, max_event_size=None):
                cursor = sent.id or cursor
                if sent.data:
                    yield cursor, orjson.loads(sent.data)


def _message(body: bytes) -> str | None:
    """The message of an error of the API, or the fields that were wrong."""
    try:
        error = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(error, dict):
        return None
    issues = [issue for issue in error.get("error") or error.get("errors") or [] if isinstance(issue, dict)]
    if issues:
        return "; ".join(map(_issue_text, issues))
    return error_text(error)


def _issue_text(issue: Json) -> str:
    """Where the server found the fault itself, its message names the field already."""
    path, message = issue.get("path") or [], str(issue.get("message"))
    is_named = not path or issue.get("code") == "custom"
    return message if is_named else f"{'.'.join(map(str, path))}: {message}"


def error_text(error: Json) -> str:
    """The text of an error `{name, data: {message}}`, as the API and the events have it."""
    return str((error.get("data") or {}).get("message") or error.get("name") or error)


class SessionFamily:
    """A session and its subagents'. `known`: whether a session is one of them, for those that were looked up."""

    def __init__(self, api: ApiClient, session_id: str) -> None:
        self._api = api
        self.known = {session_id: True}

    async def has(self, session_id: str) -> bool:
        if session_id not in self.known:
            parent = (await self._api.get(f"/session/{session_id}")).get("parentID")
            self.known[session_id] = parent is not None and await self.has(parent)
        return self.known[session_id]


MAX_LINE_CHARACTERS = 200


def shortened(text: str) -> str:
    """The text in one line of MAX_LINE_CHARACTERS characters at most, and an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_LINE_CHARACTERS else f"{line[:MAX_LINE_CHARACTERS]}…"


# When a prompt is answered, and how that ended. Pure.

ANSWERED, FAILED, STOPPED = 0, 1, 130
_UNANSWERED = ("tool-calls", None)
"""The finish reasons of a turn's last step when a rejected permission ended the turn."""


class PromptOutcome:
    """How the prompt that is stored as `message_id` ended, read from its session's events. Events before that message are
    ignored; without an id, none are: what runs now is followed."""

    def __init__(self, session_id: str, message_id: str | None = None) -> None:
        self._session_id = session_id
        self._message_id = message_id
        self._is_stored = message_id is None
        self._finish: str | None = None
        self._error: str | None = None
        self.is_known = False

    def note(self, event: dict[str, Any]) -> None:
        kind, properties = event["type"], event["properties"]
        if kind == "session.deleted" and properties["info"]["id"] == self._session_id:
            self._error, self.is_known = self._error or "deleted", True
        if kind == "message.updated" and properties["info"]["sessionID"] == self._session_id:
            self._note_message(properties["info"])
        if properties.get("sessionID") != self._session_id or not self._is_stored:
            return
        if kind == "session.error":
            self._error = (properties.get("error") or {}).get("name", "")
        if kind == "session.idle":
            self.is_known = True

    def _note_message(self, info: dict[str, Any]) -> None:
        self._is_stored = self._is_stored or info["id"] == self._message_id
        if self._is_stored and info["role"] == "assistant":
            self._finish = info.get("finish")

    @property
    def exit_code(self) -> int:
        if self._error == "MessageAbortedError":
            return STOPPED
        return FAILED if self._error is not None or self._finish in _UNANSWERED else ANSWERED


# A server in this process, with all its rules: an ASGI application as an httpx2 transport that hands on each piece of a body when
# it is sent; httpx2's own waits for the end.


class StreamingTransport(httpx2.AsyncBaseTransport):
    """`client`: the address that requests come from, as the application sees it."""

    def __init__(self, app: ASGIApp, client: tuple[str, int] | None = ("127.0.0.1", 12345)) -> None:
        self._app = app
        self._client = client

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = _Exchange(self._app, {**_scope(request), "client": self._client}, await request.aread())
        try:
            status, headers = await exchange.started()
        except BaseException:
            await exchange.aclose()
            raise
        return httpx2.Response(status, headers=headers, stream=exchange)


class _Exchange(httpx2.AsyncByteStream):
    """One request, and its answer as it comes. Closing the answer is seen as the client's disconnection."""

    def __init__(self, app: ASGIApp, scope: Scope, body: bytes) -> None:
        self._body: bytes | None = body
        self._gone = asyncio.Event()
        self._sent: asyncio.Queue[Message] = asyncio.Queue()
        self._task = asyncio.create_task(self._run(app, scope))

    async def started(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        message = await self._next()
        if message is None:
            raise httpx2.RemoteProtocolError("the application sent no answer")
        return message["status"], list(message["headers"])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (message := await self._next()) is not None:
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                return

    async def aclose(self) -> None:
        self._gone.set()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        try:
            await app(scope, self._receive, self._send)
        finally:
            self._sent.put_nowait({"type": "end"})

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if not self._gone.is_set():
            self._sent.put_nowait(message)

    async def _next(self) -> Message | None:
        """None at the end. Raises what the application raised."""
        message = await self._sent.get()
        if message["type"] != "end":
            return message
        await self._task
        return None


def _scope(request: httpx2.Request) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.split(b"?")[0],
        "query_string": request.url.query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "server": (request.url.host, request.url.port),
    }
