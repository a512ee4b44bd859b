"""The client: requests, prompts, the event stream, pages."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote

import httpx

from opensession_client import operations
from opensession_client._async.callbacks import OnEvent, OnPermission, OnQuestion
from opensession_client._async.event_stream import AsyncEventStream
from opensession_client._async.prompt_run import AsyncPromptRun, PromptCallbacks
from opensession_client.answer import Answer, input_parts, new_message_id
from opensession_client.errors import ApiError
from opensession_client.models import CreateInput, MessageWithParts, ModelRef, PartInput, PromptInput, Rule, Session, SessionModel
from opensession_client.operation import Operation
from opensession_client.reconnecting import Reconnecting

T = TypeVar("T")

DEFAULT_URL = "http://127.0.0.1:4096"
NEXT_PAGE = "X-Next-Cursor"


class AsyncOpensession:
    """A server, as one login and one directory see it.

    `url` and `token` default to OPENSESSION_URL and OPENSESSION_TOKEN. `directory`: where its sessions work; the server's own if
    absent. `reconnect_seconds`: how long prompts and streams wait for a server that is lost; None for ever. Further options are
    httpx's (`verify`, `proxy`, …).
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        password: str | None = None,
        username: str = "opencode",
        directory: str | None = None,
        reconnect_seconds: float | None = 60.0,
        **httpx_options: Any,
    ) -> None:
        token = token or (None if password else os.environ.get("OPENSESSION_TOKEN"))
        headers = {"x-opencode-directory": quote(directory)} if directory else {}
        options: dict[str, Any] = {
            # What takes long is answered with white space every 15 seconds until the answer is there.
            "timeout": httpx.Timeout(10, read=60, write=60, pool=None),
            # A prompt that runs keeps a connection: a bound would let many of them wait for each other.
            "limits": httpx.Limits(max_connections=None),
            "auth": (username, password) if password else None,
            "headers": {**headers, **({"authorization": f"Bearer {token}"} if token else {})},
        }
        base_url = url or os.environ.get("OPENSESSION_URL", DEFAULT_URL)
        self.http = httpx.AsyncClient(base_url=base_url, **{**options, **httpx_options})
        """The httpx client beneath, with the login and the directory."""
        self.reconnect_seconds = reconnect_seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self.http.aclose()

    async def call(self, operation: Operation[T], *, retry_seconds: float | None = 0) -> T:
        """Any request of the API: `call(operations.session_diff(session_id))`. Raises ApiError and httpx's errors.

        `retry_seconds`: how long it is sent again while the server is away, None for ever; for what may well be done twice.
        """
        answer, _ = await self._call(operation, retry_seconds)
        return answer

    async def _call(self, operation: Operation[T], retry_seconds: float | None) -> tuple[T, httpx.Headers]:
        reconnecting = Reconnecting(retry_seconds)
        while True:
            try:
                response = await self.http.send(operation.request(self.http))
                return operation.read(response), response.headers
            except (httpx.TransportError, ApiError) as error:
                await asyncio.sleep(reconnecting.delay(error))

    async def create_session(
        self,
        title: str | None = None,
        *,
        agent: str | None = None,
        model: str | None = None,
        permission: Sequence[Rule] | None = None,
        parent_id: str | None = None,
    ) -> Session:
        """`model`: `provider/model`. `permission`: rules of this session, behind those of the agent."""
        body = CreateInput(
            title=title,
            agent=agent,
            model=_session_model(model),
            permission=list(permission) if permission is not None else None,
            parent_id=parent_id,
        )
        return await self.call(operations.session_create(body))

    async def prompt(
        self,
        session_id: str,
        prompt: str | Sequence[PartInput],
        *,
        agent: str | None = None,
        model: str | None = None,
        system: str | None = None,
        variant: str | None = None,
        tools: dict[str, bool] | None = None,
        message_id: str | None = None,
        on_permission: OnPermission | None = None,
        on_question: OnQuestion | None = None,
        on_event: OnEvent | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """The answer to a text, or to parts. Goes on when the connection or the server is lost in between.

        `on_permission` answers what the agent, or a subagent, needs to be allowed: `"once"`, `"always"`, `"reject"`, or a
        ReplyInput with a message. `on_question` returns the chosen labels for each question, None to reject them. Without them
        the turn waits until somebody else answers. `on_event` is called with each event of the session and its subagents.

        `message_id`: `msg_` and letters or digits; a prompt that is sent twice under one id is answered once.

        `timeout`: seconds, looked at with each event, at least every ten seconds; a lost server is waited for no longer. The turn
        goes on when this function ends by it or is cancelled: `abort` stops it.

        Raises PromptFailed, PromptAborted, ApiError, TimeoutError and httpx's errors.
        """
        body = PromptInput(
            parts=input_parts(prompt),
            message_id=message_id or new_message_id(),
            agent=agent,
            model=_model(model),
            system=system,
            variant=variant,
            tools=tools,
        )
        callbacks = PromptCallbacks(on_permission, on_question, on_event)
        run = AsyncPromptRun(self, session_id, body, callbacks, timeout, sent_before=message_id is not None)
        return await run.answer()

    async def abort(self, session_id: str) -> None:
        """Returns when the session is idle and all is stored."""
        await self.call(operations.session_abort(session_id))

    def stream(
        self,
        *,
        parts: Literal["full", "delta"] = "delta",
        last_event_id: str | None = None,
        directory: str | None = None,
    ) -> AsyncEventStream:
        """The events of the client's directory, or another: `async with client.stream() as events`, then `async for`.

        `parts`: a part that streams comes as what it gains, or whole each time. `last_event_id`: where an earlier stream ended.
        """
        return AsyncEventStream(
            self.http,
            directory=directory,
            parts=parts,
            last_event_id=last_event_id,
            reconnect_seconds=self.reconnect_seconds,
        )

    async def sessions(
        self, *, search: str | None = None, roots: bool = False, directory: str | None = None, page_size: int = 100
    ) -> AsyncIterator[Session]:
        """Newest first. `search`: part of the title. `roots`: no subagents. `directory`: exactly this one's; else the project's.

        The API has no cursor here: each page is asked for with all before it, twice as many as the last time.
        """
        seen: set[str] = set()
        limit = page_size
        while True:
            wanted = operations.session_list(search=search, roots="true" if roots else None, directory=directory, limit=limit)
            page = await self.call(wanted)
            for session in page:
                if session.id not in seen:
                    seen.add(session.id)
                    yield session
            if len(page) < limit:
                return
            limit *= 2

    async def messages(
        self, session_id: str, *, page_size: int = 100, retry_seconds: float | None = 0
    ) -> AsyncIterator[MessageWithParts]:
        """Newest first. The next page is read when it is needed. `retry_seconds` as of `call`."""
        before: str | None = None
        while True:
            wanted = operations.session_messages(session_id, limit=page_size, before=before)
            page, headers = await self._call(wanted, retry_seconds)
            for message in reversed(page):
                yield message
            before = headers.get(NEXT_PAGE)
            if before is None:
                return


def _model(name: str | None) -> ModelRef | None:
    """`anthropic/claude-sonnet-4-5`: what stands behind the first `/` may contain others."""
    if name is None:
        return None
    provider, _, model = name.partition("/")
    return ModelRef(provider_id=provider, model_id=model)


def _session_model(name: str | None) -> SessionModel | None:
    if name is None:
        return None
    provider, _, model = name.partition("/")
    return SessionModel(provider_id=provider, id=model)
