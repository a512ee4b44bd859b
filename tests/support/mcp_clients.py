"""The official SDK's client of `/mcp-server` of a running app, and what its calls answer."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult
from running_app import RunningApp

ERAS = ("legacy", "auto")
"""The protocol's versions with a handshake, and those without."""


@asynccontextmanager
async def mcp_client(app: RunningApp, era: str = "auto", *, query: str = "") -> AsyncIterator[Client]:
    transport = streamable_http_client(f"http://127.0.0.1:4096/mcp-server{query}", http_client=app.client)
    async with Client(transport, mode=era) as client:
        yield client


async def called(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer; fails where it is an error."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, said(result)
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """The error's text; fails where it is none."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, said(result)
    return said(result)


def said(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if block.type == "text")
