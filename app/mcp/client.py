"""Opens the SDK's client for a configured server. Importing this imports the SDK, which takes most of a second."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeVar, assert_never

import httpx2
from mcp import Client, MCPError
from mcp.client._transport import TransportStreams
from mcp.client.session import IncomingMessage
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp_types import (
    Implementation,
    PaginatedResult,
    PromptListChangedNotification,
    ResourceListChangedNotification,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from app import __version__
from app.mcp import content, oauth, stdio
from app.mcp.bounded_http import ask_uncompressed, bound
from app.mcp.target import McpTarget
from app.mcp.values import McpFailure, Offers
from app.mcp.watch import McpWatch
from app.schema.config import McpLocalConfig, McpRemoteConfig
from app.telemetry.telemetry import put_trace

log = logging.getLogger(__name__)
P = TypeVar("P", bound=PaginatedResult)

MOST_PAGES = 100
MOST_LISTED_BYTES = 4 * 1024 * 1024
"""Of all pages together, in JSON."""
_TIMEOUT = httpx2.Timeout(30.0, read=300.0)
"""Seconds. An answer may be a stream that is silent for long; how long a call may take is the connection's affair."""
_CHANGES = (ToolListChangedNotification, PromptListChangedNotification, ResourceListChangedNotification)

# The SDK logs a traceback for every line it cannot read and every sign-in it cannot make; the server's status tells of both.
for _name in ("mcp.client.streamable_http", "mcp.client.auth.oauth2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)


@asynccontextmanager
async def open_client(target: McpTarget, watch: McpWatch) -> AsyncIterator[Client]:
    """Connected and initialised; the watch gets what the server announces. Raises the SDK's errors, in groups, and McpFailure."""

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, _CHANGES):
            watch.changed()

    identity = Implementation(name="opensession", version=__version__)
    client = Client(_transport(target, watch), message_handler=heard, client_info=identity, cache=None)
    async with client, AsyncExitStack() as stack:
        if client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            await _listen(client, stack)
        yield client


def _transport(target: McpTarget, watch: McpWatch) -> AbstractAsyncContextManager[TransportStreams]:
    match target.config:
        case McpLocalConfig():
            return stdio.streams(target, target.config, watch)
        case McpRemoteConfig():
            return _http(target, target.config, watch)
        case _:
            assert_never(target.config)


@asynccontextmanager
async def _http(target: McpTarget, config: McpRemoteConfig, watch: McpWatch) -> AsyncIterator[TransportStreams]:
    endpoint = httpx2.URL(config.url)

    async def note(response: httpx2.Response) -> None:
        if response.request.url != endpoint:
            return  # of the sign-in
        watch.last_status = response.status_code
        if response.status_code == httpx2.codes.NOT_FOUND and "mcp-session-id" in response.request.headers:
            watch.ended(McpFailure("The server no longer knows this connection"))

    async def trace(request: httpx2.Request) -> None:
        put_trace(request.headers)

    auth = oauth.authentication(target, config)
    hooks: dict[str, list[Callable[..., Awaitable[None]]]] = {"request": [trace, ask_uncompressed], "response": [note, bound]}
    async with (
        httpx2.AsyncClient(headers=config.headers, timeout=_TIMEOUT, auth=auth, event_hooks=hooks) as http,
        streamable_http_client(config.url, http_client=http) as streams,
    ):
        yield streams


async def _listen(client: Client, stack: AsyncExitStack) -> None:
    """Newer servers tell of changes only on a stream that was asked for."""
    can = client.server_capabilities
    tools, prompts, resources = (bool(kind and kind.list_changed) for kind in (can.tools, can.prompts, can.resources))
    if not (tools or prompts or resources):
        return
    changes = client.listen(tools_list_changed=tools, prompts_list_changed=prompts, resources_list_changed=resources)
    try:
        await stack.enter_async_context(changes)
    except (MCPError, SubscriptionLost) as error:
        log.warning("an MCP server will not tell of its changes: %s", error)


async def offers(client: Client, server: str) -> Offers:
    can = client.server_capabilities
    tools = await _pages(client.list_tools) if can.tools else []
    prompts = await _optional(client.list_prompts, server) if can.prompts else []
    resources = await _optional(client.list_resources, server) if can.resources else []
    return Offers(
        tuple(content.tool(server, tool) for page in tools for tool in page.tools),
        tuple(content.prompt(server, prompt) for page in prompts for prompt in page.prompts),
        tuple(content.resource(server, resource) for page in resources for resource in page.resources),
    )


async def _optional(fetch: Callable[..., Awaitable[P]], server: str) -> list[P]:
    """A server whose prompts or resources cannot be listed still has its tools."""
    try:
        return await _pages(fetch)
    except MCPError as error:
        log.warning("the MCP server %s does not list what it offers: %s", server, error)
        return []


async def _pages(fetch: Callable[..., Awaitable[P]]) -> list[P]:
    """Raises McpFailure."""
    pages = [await fetch()]
    size = _require_listable(0, pages[0])
    while (cursor := pages[-1].next_cursor) and len(pages) < MOST_PAGES:
        pages.append(await fetch(cursor=cursor))
        size = _require_listable(size, pages[-1])
    return pages


def _require_listable(size: int, page: PaginatedResult) -> int:
    """The size of all pages with this one. Raises McpFailure."""
    size += len(page.model_dump_json())
    if size > MOST_LISTED_BYTES:
        raise McpFailure(f"The server lists more than {MOST_LISTED_BYTES} bytes")
    return size
