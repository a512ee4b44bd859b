"""Signing in to remote servers: a person opens a page, the browser comes back with a code, the connection goes on."""

import asyncio
from typing import Any

from app.mcp.servers import McpServers
from app.mcp.sign_in import SignIn
from app.mcp.target import takes_sign_in
from app.schema.config import McpRemoteConfig
from app.schema.errors import BadRequest
from app.schema.event import EventMcpBrowserOpenFailed, McpPage
from app.schema.mcp import MCPStatus, MCPStatusConnected


async def start(servers: McpServers, name: str, redirect_uri: str) -> str:
    """The page to open; empty when there is no need to. Raises NotFound, BadRequest for a server that takes no sign-in."""
    server = servers.find(name)
    if not takes_sign_in(server.config):
        raise BadRequest(f"The MCP server {name} takes no sign-in", ["name"], name)
    sign_in = SignIn(redirect_uri)
    settled = asyncio.create_task(servers.open(server, sign_in).settled())
    either: list[asyncio.Future[Any]] = [settled, sign_in.address]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    settled.cancel()
    if sign_in.address.done():
        return sign_in.address.result()
    if isinstance(server.status, MCPStatusConnected):
        return ""
    reason = getattr(server.status, "error", "it lets nobody in")
    raise BadRequest(f"Signing in to the MCP server {name} could not begin: {reason}", ["name"], name)


async def finish(servers: McpServers, name: str, code: str) -> MCPStatus:
    """Raises NotFound, BadRequest when no sign-in waits for a code."""
    server = servers.find(name)
    sign_in = server.connection.target.sign_in if server.connection else None
    if server.connection is None or sign_in is None or not sign_in.waits:
        raise BadRequest(f"No sign-in to the MCP server {name} waits for a code: start one first", ["name"], name)
    sign_in.finish(code)
    await server.connection.settled()
    return server.status


async def run(servers: McpServers, name: str, redirect_uri: str) -> MCPStatus:
    """The whole way. This server opens no browser: it tells its clients the page, and waits. Raises as `start` does."""
    page = await start(servers, name, redirect_uri)
    if page:
        told = EventMcpBrowserOpenFailed(properties=McpPage(mcp_name=name, url=page))
        servers.settings.announce(servers.directory, told)
    connection = servers.find(name).connection
    if connection is not None:
        await connection.settled()
    return servers.find(name).status


def forget(servers: McpServers, name: str) -> None:
    """Raises NotFound."""
    server = servers.find(name)
    if isinstance(server.config, McpRemoteConfig):
        servers.settings.credentials.remove(server.config.url)
        if server.connection is not None:
            servers.open(server)


def waiting(servers: McpServers, state: str) -> SignIn | None:
    """The sign-in whose browser comes back with this state."""
    found = (server.connection.target.sign_in for server in servers if server.connection)
    return next((sign_in for sign_in in found if sign_in and sign_in.waits and sign_in.state == state), None)
