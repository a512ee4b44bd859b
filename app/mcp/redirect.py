"""Where a sign-in page sends the browser back to: this server, or the address that the configuration has for it.

An authorization server accepts only addresses that it knows. Where that is another port of this machine, as with OpenCode, the
server listens to it as long as the sign-in lasts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from html import escape
from urllib.parse import parse_qsl, urlsplit

from app.mcp.values import McpFailure
from app.schema.config import McpOAuthConfig, McpRemoteConfig

CALLBACK_PATH = "/mcp/oauth/callback"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_REQUEST_SECONDS = 10.0

AnswerBrowser = Callable[[dict[str, str]], Awaitable[str]]
"""Takes the query that the browser brings; the text that it is shown."""


def redirect_uri(config: McpRemoteConfig, of_server: str) -> str:
    """`of_server`: as the user's browser reaches this server."""
    own = config.oauth or McpOAuthConfig()
    if own.redirect_uri:
        return own.redirect_uri
    return f"http://127.0.0.1:{own.callback_port}{CALLBACK_PATH}" if own.callback_port else of_server


def own_port(redirect: str, of_server: str) -> int | None:
    """The port to listen to; None where the redirect leads to this server itself or to another machine. Raises McpFailure for
    what is no address."""
    try:
        address, port = urlsplit(redirect), urlsplit(redirect).port
    except ValueError as error:
        raise McpFailure(f"oauth.redirectUri is no address: {redirect}: {error}") from error
    is_here = address.scheme == "http" and address.hostname in _LOOPBACK
    return port if is_here and port != urlsplit(of_server).port else None


async def listen(redirect: str, port: int, answer: AnswerBrowser) -> asyncio.Server:
    """Raises McpFailure where the port is taken."""
    address = urlsplit(redirect)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, query = await _request(reader)
            writer.write(_page(await answer(query) if path == address.path else "There is nothing here."))
            await writer.drain()
        except (TimeoutError, ValueError, OSError, EOFError, asyncio.LimitOverrunError):
            pass  # no browser that comes back from a sign-in
        finally:
            writer.close()

    try:
        return await asyncio.start_server(serve, address.hostname, port)
    except OSError as error:
        raise McpFailure(f"port {port}, of oauth.callbackPort or oauth.redirectUri, is not free: {error.strerror}") from error


async def _request(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    """Path and query. Raises ValueError for another method than GET."""
    async with asyncio.timeout(_REQUEST_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
    method, target, _ = head.split(b" ", 2)
    if method != b"GET":
        raise ValueError(f"{method!r} is not what a browser sends")
    asked = urlsplit(target.decode("ascii"))
    return asked.path, dict(parse_qsl(asked.query))


def _page(text: str) -> bytes:
    body = f"<p>{escape(text)}</p>".encode()
    lines = ("HTTP/1.1 200 OK", "content-type: text/html; charset=utf-8", f"content-length: {len(body)}", "connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + body
