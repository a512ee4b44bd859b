"""Signing in to remote servers: the user opens a page, the browser comes back with a code, the connection goes on.

An authorization server sends browsers back only to addresses that it knows. If such an address is another port of this machine,
as with OpenCode, the server listens to that port as long as the sign-in lasts.
"""

import asyncio
from collections.abc import Iterable
from html import escape
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from pydantic import ValidationError

from app.record.directory_state import DirectoryState, DirectoryStates
from app.schema.base import Wire
from app.schema.config import McpOAuthConfig, McpRemoteConfig
from app.schema.errors import BadRequest, NotFound
from app.schema.event import EventMcpBrowserOpenFailed, McpPage
from app.schema.project import MCPStatus, MCPStatusConnected
from app.tools.mcp.servers import CODE, RESULT, SIGN_IN, McpServer, McpServers
from app.tools.mcp.values import SignIn, takes_sign_in

CALLBACK_PATH = "/mcp/oauth/callback"
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_REQUEST_SECONDS = 10.0

HAND_OVER_SECONDS = 30.0
"""How long another server may take to finish a sign-in with the code that came back to this one."""
POLL_SECONDS = 0.25


def redirect_uri(config: McpRemoteConfig, of_server: str) -> str:
    """`of_server`: the address at which the user's browser reaches this server."""
    own = config.oauth or McpOAuthConfig()
    if own.redirect_uri:
        return own.redirect_uri
    return f"http://127.0.0.1:{own.callback_port}{CALLBACK_PATH}" if own.callback_port else of_server


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


class SignInAnswer(Wire):
    """What a sign-in page sends a browser back with. The state identifies the sign-in."""

    state: str
    code: str | None = None
    issuer: str | None = None
    error: str | None = None


class SignInResult(Wire):
    state: str
    status: MCPStatus


class NoSignIn(NotFound):
    text = "No sign-in waits for this; it may have taken too long. Start it again."


async def start(servers: McpServers, name: str, of_server: str) -> str:
    """The page to open; empty if no sign-in is needed. `of_server`: where browsers come back to, unless the configuration says
    otherwise. Raises NotFound, BadRequest for a server that takes no sign-in."""
    server = servers.find(name)
    if not takes_sign_in(server.config):
        raise BadRequest(f"The MCP server {name} takes no sign-in", ["name"], name)
    redirect = redirect_uri(server.config, of_server)
    listener = await _listener(servers, server, redirect, of_server)
    sign_in = SignIn(redirect, listener)
    opened = asyncio.create_task(servers.open(server, sign_in).wait_opened())
    either: list[asyncio.Future[Any]] = [opened, sign_in.address]
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    opened.cancel()
    if sign_in.address.done():
        await servers.settings.states.put(servers.directory, SIGN_IN + name, sign_in.state or "")
        return sign_in.address.result()
    if isinstance(server.status, MCPStatusConnected):
        return ""
    reason = getattr(server.status, "error", "it lets nobody in")
    raise _not_begun(name, reason)


async def _listener(servers: McpServers, server: McpServer, redirect: str, of_server: str) -> asyncio.Server | None:
    """Listens at the port of this machine that the redirect leads to, unless that is this server's own. Raises BadRequest for a
    bad address, and if the port is taken."""
    try:
        address, port = urlsplit(redirect), urlsplit(redirect).port
    except ValueError as error:
        raise _not_begun(server.name, f"oauth.redirectUri is no address: {redirect}: {error}") from error
    is_here = address.scheme == "http" and address.hostname in _LOOPBACK
    if not is_here or port in (None, urlsplit(of_server).port):
        return None
    if server.sign_in is not None:
        server.sign_in.close_listener()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            path, query = await _request(reader)
            writer.write(_page(await _answer_browser(servers, query) if path == address.path else "There is nothing here."))
            await writer.drain()
        except (TimeoutError, ValueError, OSError, EOFError, asyncio.LimitOverrunError):
            pass  # not a browser that comes back from a sign-in
        finally:
            writer.close()

    try:
        return await asyncio.start_server(serve, address.hostname, port)
    except OSError as error:
        reason = f"port {port}, of oauth.callbackPort or oauth.redirectUri, is not free: {error.strerror}"
        raise _not_begun(server.name, reason) from error


async def _answer_browser(servers: McpServers, query: dict[str, str]) -> str:
    """The text to show."""
    try:
        answer = SignInAnswer.model_validate({**query, "issuer": query.get("iss")})
    except ValidationError:
        return "This address has no state: it is for the browser that comes back from a sign-in."
    try:
        return page_text(await finish_from_browser([servers], servers.settings.states, answer))
    except NoSignIn as refusal:
        return str(refusal)


def _not_begun(name: str, reason: str) -> BadRequest:
    return BadRequest(f"Signing in to the MCP server {name} could not begin: {reason}", ["name"], name)


async def finish(servers: McpServers, name: str, code: str) -> MCPStatus:
    """Raises NotFound, BadRequest if no sign-in waits for a code."""
    server, states = servers.find(name), servers.settings.states
    if server.sign_in is not None and server.waits_for_user:
        return await _finish(servers, server, SignInAnswer(state=server.sign_in.state or "", code=code))
    elsewhere = [
        state.value for state in await states.in_directory(servers.directory) if state.name == SIGN_IN + name and state.value
    ]
    if not elsewhere:
        raise BadRequest(f"No sign-in to the MCP server {name} waits for a code: start one first", ["name"], name)
    return await _hand_over(states, servers.directory, name, SignInAnswer(state=elsewhere[0], code=code))


async def run(servers: McpServers, name: str, of_server: str) -> MCPStatus:
    """The whole sign-in. This server opens no browser: it sends its clients the page, and waits. Raises as `start` does."""
    page = await start(servers, name, of_server)
    if page:
        failed = EventMcpBrowserOpenFailed(properties=McpPage(mcp_name=name, url=page))
        servers.settings.states.announce(servers.directory, failed)
    return await _status_when_opened(servers.find(name))


async def forget(servers: McpServers, name: str) -> None:
    """Raises NotFound."""
    server = servers.find(name)
    if isinstance(server.config, McpRemoteConfig):
        servers.settings.credentials.remove(server.config.url)
        if server.connection is not None:
            servers.open(server)
            await servers.share_choice(server)


async def finish_from_browser(everywhere: Iterable[McpServers], states: DirectoryStates, answer: SignInAnswer) -> MCPStatus:
    """For a browser that comes back from a sign-in page, perhaps to another server than the one it started from. Only that page
    knows the state. Raises NoSignIn."""
    for servers in everywhere:
        if (server := _waiting(servers, answer.state)) is not None:
            return await _finish(servers, server, answer)
    found = await states.find(SIGN_IN, answer.state)
    if found is None:
        raise NoSignIn
    return await _hand_over(states, found.directory, found.name.removeprefix(SIGN_IN), answer)


async def finish_from_other_server(servers: McpServers, state: DirectoryState) -> None:
    """For a browser that came back to another server: its answer is for a sign-in that waits here, if there is one."""
    answer = SignInAnswer.model_validate_json(state.value)
    if (server := _waiting(servers, answer.state)) is not None:
        await _finish(servers, server, answer)


async def _hand_over(states: DirectoryStates, directory: str, name: str, answer: SignInAnswer) -> MCPStatus:
    """Passes the answer to the server on which the sign-in was started. Raises NoSignIn when that is gone."""
    await states.put(directory, CODE + name, answer.wire_json().decode())
    try:
        async with asyncio.timeout(HAND_OVER_SECONDS):
            while (status := await _result(states, directory, name, answer.state)) is None:  # noqa: ASYNC110  it comes by the database
                await asyncio.sleep(POLL_SECONDS)
            return status
    except TimeoutError:
        raise NoSignIn from None


async def _result(states: DirectoryStates, directory: str, name: str, sign_in: str) -> MCPStatus | None:
    """None while the sign-in lasts."""
    stored = [state.value for state in await states.in_directory(directory) if state.name == RESULT + name]
    results = [SignInResult.model_validate_json(value) for value in stored]
    return next((result.status for result in results if result.state == sign_in), None)


async def _finish(servers: McpServers, server: McpServer, answer: SignInAnswer) -> MCPStatus:
    """The other servers connect with the credentials that the sign-in stored."""
    assert server.sign_in is not None
    if answer.code is None:
        server.sign_in.refuse(answer.error or "no code came back")
    else:
        server.sign_in.finish(answer.code, answer.issuer)
    status, states = await _status_when_opened(server), servers.settings.states
    result = SignInResult(state=answer.state, status=status)
    await states.put(servers.directory, SIGN_IN + server.name)
    await states.put(servers.directory, RESULT + server.name, result.wire_json().decode())
    await servers.share_choice(server)
    return status


def page_text(status: MCPStatus) -> str:
    """The text that the user sees in the browser."""
    if isinstance(status, MCPStatusConnected):
        return "Signed in. This window can be closed."
    return f"That did not work: {getattr(status, 'error', status.status)}"


def _waiting(servers: McpServers, state: str) -> McpServer | None:
    waiting = (server for server in servers if server.waits_for_user)
    return next((server for server in waiting if server.sign_in and server.sign_in.state == state), None)


async def _status_when_opened(server: McpServer) -> MCPStatus:
    if server.connection is not None:
        await server.connection.wait_opened()
    return server.status
