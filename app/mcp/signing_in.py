"""Signing in to remote servers: the user opens a page, the browser comes back with a code, the connection goes on."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from app.mcp.servers import McpServer, McpServers
from app.mcp.sign_in import SignIn
from app.mcp.target import takes_sign_in
from app.schema.config import McpRemoteConfig
from app.schema.errors import BadRequest, NotFound
from app.schema.event import EventMcpBrowserOpenFailed, McpPage
from app.schema.mcp import MCPStatus, MCPStatusConnected


@dataclass(frozen=True, slots=True)
class SignInAnswer:
    """What a sign-in page sends a browser back with."""

    code: str | None
    issuer: str | None
    error: str | None


async def start(servers: McpServers, name: str, redirect_uri: str) -> str:
    """The page to open; empty when there is no need to. Raises NotFound, BadRequest for a server that takes no sign-in."""
    server = servers.find(name)
    if not takes_sign_in(server.config):
        raise BadRequest(f"The MCP server {name} takes no sign-in", ["name"], name)
    sign_in = SignIn(redirect_uri)
    opened = asyncio.create_task(servers.open(server, sign_in).wait_opened())
    either: list[asyncio.Future[Any]] = [opened, sign_in.address]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    opened.cancel()
    if sign_in.address.done():
        return sign_in.address.result()
    if isinstance(server.status, MCPStatusConnected):
        return ""
    reason = getattr(server.status, "error", "it lets nobody in")
    raise BadRequest(f"Signing in to the MCP server {name} could not begin: {reason}", ["name"], name)


async def finish(servers: McpServers, name: str, code: str) -> MCPStatus:
    """Raises NotFound, BadRequest when no sign-in waits for a code."""
    server = servers.find(name)
    if server.sign_in is None or not server.waits_for_user:
        raise BadRequest(f"No sign-in to the MCP server {name} waits for a code: start one first", ["name"], name)
    server.sign_in.finish(code)
    return await _status_when_opened(server)


async def run(servers: McpServers, name: str, redirect_uri: str) -> MCPStatus:
    """The whole way. This server opens no browser: it tells its clients the page, and waits. Raises as `start` does."""
    page = await start(servers, name, redirect_uri)
    if page:
        failed = EventMcpBrowserOpenFailed(properties=McpPage(mcp_name=name, url=page))
        servers.settings.announce(servers.directory, failed)
    return await _status_when_opened(servers.find(name))


def forget(servers: McpServers, name: str) -> None:
    """Raises NotFound."""
    server = servers.find(name)
    if isinstance(server.config, McpRemoteConfig):
        servers.settings.credentials.remove(server.config.url)
        if server.connection is not None:
            servers.open(server)


async def come_back(everywhere: Iterable[McpServers], state: str, answer: SignInAnswer) -> MCPStatus:
    """The browser is back from a sign-in page. The state is known to nobody but that page. Raises NotFound."""
    server = next((server for servers in everywhere for server in servers if _waits_for(server, state)), None)
    if server is None or server.sign_in is None:
        raise NotFound("No sign-in waits for this; it may have taken too long. Start it again.")
    if answer.code is None:
        server.sign_in.refuse(answer.error or "no code came back")
    else:
        server.sign_in.finish(answer.code, answer.issuer)
    return await _status_when_opened(server)


def _waits_for(server: McpServer, state: str) -> bool:
    return server.waits_for_user and server.sign_in is not None and server.sign_in.state == state


async def _status_when_opened(server: McpServer) -> MCPStatus:
    if server.connection is not None:
        await server.connection.wait_opened()
    return server.status
