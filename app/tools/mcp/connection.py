"""One connection to an MCP server, from its opening to its end, in a task of its own: what the SDK opens must be closed by the
task that opened it."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from app.schema.project import (
    MCPStatus,
    MCPStatusConnected,
    MCPStatusDisabled,
    MCPStatusFailed,
    MCPStatusNeedsAuth,
    MCPStatusNeedsClientRegistration,
)
from app.tools.mcp.values import Content, McpFailure, McpTarget, McpTimeout, McpWatch, ServerOffers, SignInNeeded, takes_sign_in
from app.util.secrets import redacted
from app.util.tasks import forget_failure

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult, GetPromptResult, ReadResourceResult

    Result = CallToolResult | GetPromptResult | ReadResourceResult


T = TypeVar("T")

CLOSE_GRACE_SECONDS = 2.0
"""The grace period for closing a connection before it is cancelled."""
_UNAUTHORIZED = 401


class McpConnection:
    """Begins to connect when it is created. `answer_seconds`: the timeout of a request; each progress report of a tool starts it
    anew. `on_change` is called when the server's tools have changed, but not after `close`."""

    def __init__(self, target: McpTarget, connect_seconds: float, answer_seconds: float, on_change: Callable[[], None]) -> None:
        self.target = target
        self.offers = ServerOffers()
        self.status: MCPStatus | None = None
        """None while connecting."""
        self._connect_seconds = connect_seconds
        self._answer_seconds = answer_seconds
        self._on_change = on_change
        self._watch = McpWatch()
        self._client: Client | None = None
        self._opened = asyncio.Event()
        self._was_connected = False
        self._closing = False
        self._scope = anyio.CancelScope()
        self._began = time.monotonic()
        self._task = asyncio.create_task(self._run(), name=f"mcp {target.name}")

    @property
    def is_lost(self) -> bool:
        """Whether the connection was up and has ended without being closed."""
        return self._was_connected and not self._closing and (self._watch.end is not None or self._task.done())

    async def wait_opened(self, within: float | None = None) -> None:
        """Returns when the connection is up, or has failed; at the latest `within` seconds after it began."""
        left = None if within is None else max(self._began + within - time.monotonic(), 0)
        with suppress(TimeoutError):
            async with asyncio.timeout(left):
                await self._opened.wait()

    async def close(self) -> None:
        """Returns when the connection's process and requests have ended."""
        self._closing = True
        if self._client is not None:
            self._watch.stop()
            await asyncio.wait([self._task], timeout=CLOSE_GRACE_SECONDS)
        self._scope.cancel()
        await asyncio.wait([self._task])

    async def call_tool(self, name: str, arguments: dict[str, Any]) -> Content:
        """Raises McpFailure, as the other requests do. A request that is cancelled returns at once."""
        return await self._request(
            lambda client, extend_timeout: client.call_tool(name, arguments, progress_callback=extend_timeout)
        )

    async def get_prompt(self, name: str, arguments: dict[str, str]) -> Content:
        return await self._request(lambda client, _: client.get_prompt(name, arguments))

    async def read_resource(self, uri: str) -> Content:
        return await self._request(lambda client, _: client.read_resource(uri))

    async def _request(self, send: "Callable[[Client, ProgressFnT], Awaitable[Result]]") -> Content:
        if self._client is None:
            raise McpFailure("The server is not connected")
        from app.tools.mcp.client import content_of  # with the SDK, which is imported by now

        try:
            async with asyncio.timeout(self._answer_seconds) as clock:

                async def extend_timeout(progress: float, total: float | None, message: str | None) -> None:
                    clock.reschedule(asyncio.get_running_loop().time() + self._answer_seconds)

                result = await _without_waiting_for_cancel(send(self._client, extend_timeout))
        except TimeoutError as error:
            raise McpTimeout(f"The server has not answered for {self._answer_seconds:g} s") from error
        except Exception as error:
            cause = self._watch.end or error
            raise McpFailure(self._redacted_message(cause)) from error
        return content_of(result)

    async def _run(self) -> None:
        cause: Exception | None = None
        try:
            with self._scope:
                self._scope.deadline = anyio.current_time() + self._connect_seconds
                await self._serve()
        except Exception as error:  # noqa: BLE001  any error becomes the status of this MCP server; nothing else may fail by it
            cause = self._watch.end or _first_cause(error)
        finally:
            self._client = None
            self.status = MCPStatusDisabled() if self._closing else self._failure_status(cause)
            self._end_opening()
            self._set_offers(ServerOffers())

    async def _serve(self) -> None:
        await asyncio.to_thread(import_module, "app.tools.mcp.client")  # the SDK takes most of a second to import
        from app.tools.mcp.client import offers, open_client

        async with open_client(self.target, self._watch) as client:
            self._set_offers(await offers(client, self.target.name))
            self._scope.deadline = math.inf
            self._client, self.status, self._was_connected = client, MCPStatusConnected(), True
            self._end_opening()
            while await self._watch.next_change():
                with anyio.fail_after(self._answer_seconds):
                    self._set_offers(await offers(client, self.target.name))

    def _end_opening(self) -> None:
        self._opened.set()
        if self.target.sign_in is not None:
            self.target.sign_in.close_listener()

    def _set_offers(self, offers: ServerOffers) -> None:
        before, self.offers = self.offers, offers
        if before.tools != offers.tools and not self._closing:
            self._on_change()

    def _failure_status(self, cause: Exception | None) -> MCPStatus:
        """`cause` is None if connecting took too long."""
        needs_sign_in = (
            self._watch.last_status == _UNAUTHORIZED and self.target.sign_in is None and takes_sign_in(self.target.config)
        )
        if needs_sign_in or isinstance(cause, SignInNeeded):
            return MCPStatusNeedsAuth()
        if cause is None:  # the SDK may be half imported
            return MCPStatusFailed(error=f"The server did not answer within {self._connect_seconds:g} s")
        from mcp.client.auth import OAuthRegistrationError

        if isinstance(cause, OAuthRegistrationError):
            return MCPStatusNeedsClientRegistration(error=self._redacted_message(cause))
        return MCPStatusFailed(error=self._redacted_message(cause))

    def _redacted_message(self, cause: Exception) -> str:
        """The message without the configuration's secrets, which a server or a failed address may quote."""
        return redacted(str(cause), self.target.secrets()) or type(cause).__name__


async def _without_waiting_for_cancel(work: Awaitable[T]) -> T:
    """A cancellation is passed on to the work, whose end is not waited for: notifying a server that hangs can take seconds."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(forget_failure)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        task.cancel()
        raise


def _first_cause(error: Exception) -> Exception:
    """The first error inside nested exception groups."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
