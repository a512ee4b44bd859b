"""One request of `/mcp-server`: Streamable HTTP without sessions, so that any of several servers may answer, and nothing is kept
for a client that has disconnected. The tools call the API in this process, with the login of the request."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any
from urllib.parse import quote

import httpx2
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from app.api.client.asgi_transport import StreamingTransport
from app.api.client.client import ApiClient
from app.api.mcp_server.server import Context, SessionsServer

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

DIRECTORY = "opensession.mcp_directory"
"""The key in a request's scope for the directory that the request names."""
_FORWARDED_HEADERS = ("host", "authorization", "traceparent", "tracestate")

for _name in ("mcp.server.streamable_http", "mcp.server.streamable_http_manager"):
    logging.getLogger(_name).setLevel(logging.WARNING)  # it logs the beginning and the end of each request


async def answer(scope: MutableMapping[str, Any], receive: Receive, send: Send, *, max_body_bytes: int) -> None:
    """`scope` is the request's, with its FastAPI application."""
    manager = StreamableHTTPSessionManager(_server(), stateless=True, max_request_body_size=max_body_bytes)
    async with manager.run():
        await manager.handle_request(scope, receive, send)


@cache
def _server() -> Server[Any]:
    return SessionsServer(_api_client).server()


@asynccontextmanager
async def _api_client(context: Context) -> AsyncIterator[ApiClient]:
    """An event stream that ends is not reconnected: usually the server is stopping, or the login has ended."""
    request: Any = context.request
    scope, given = request.scope, request.headers
    transport = StreamingTransport(scope["app"], scope.get("client"))
    forwarded = {name: given[name] for name in _FORWARDED_HEADERS if name in given}
    headers = {**forwarded, **({"x-opencode-directory": quote(scope[DIRECTORY])} if scope.get(DIRECTORY) else {})}
    url = f"{scope['scheme']}://127.0.0.1"  # the host of the request is in the header `host`
    async with httpx2.AsyncClient(transport=transport, base_url=url, headers=headers, timeout=None) as http:
        yield ApiClient(http, "The server", resumes=False)
