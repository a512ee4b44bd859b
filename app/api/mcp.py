"""MCP servers: their status, switching them on and off, signing in to them, their resources.

And `/mcp-server`: the sessions as tools of other agents, by the Model Context Protocol. A tool calls the other routes with the
request's login, so those routes judge who may do it.
"""

import asyncio
from html import escape
from importlib import import_module
from typing import Annotated, Any, Literal

from fastapi import Body, Depends, Path, Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import Field
from starlette.types import Message, Receive, Scope, Send

from app.api.deps import AppServices, CurrentInstance, Directory, public_base
from app.api.json_route import router
from app.api.roles import MANAGES, READS
from app.schema.base import Wire
from app.schema.config import McpLocalConfig, McpRemoteConfig
from app.schema.project import McpResource, MCPStatus, MCPStatusConnected
from app.tools.external import sanitised
from app.tools.mcp import signing_in
from app.tools.mcp.servers import McpServers
from app.tools.mcp.signing_in import CALLBACK_PATH
from app.tools.mcp.values import state_of

routes = router("", 400, 403, tags=["mcp"])
of_one = router("/mcp/{name:path}", 400, 403, 404, tags=["mcp"])
served = router("/mcp-server", include_in_schema=False)
routers = (routes, of_one, served)


class NewServer(Wire):
    name: Annotated[str, Field(min_length=1)]
    config: Annotated[McpLocalConfig | McpRemoteConfig, Field(discriminator="type")]


class SignInPage(Wire):
    """Where the user signs in, and the state that the browser comes back with; empty if no sign-in is needed."""

    authorization_url: str
    oauth_state: str


class SignInCode(Wire):
    code: str


class Forgotten(Wire):
    success: Literal[True] = True


NamePath = Annotated[str, Path(alias="name")]


async def _servers(instance: CurrentInstance) -> McpServers:
    return instance.extensions.mcp


Servers = Annotated[McpServers, Depends(_servers)]
"""The MCP servers of the request's directory."""


@routes.get("/mcp", dependencies=READS)
async def status(servers: Servers) -> dict[str, MCPStatus]:
    """Waits for the servers that are connecting."""
    return dict(await servers.statuses())


@routes.post("/mcp", dependencies=MANAGES)
async def add(servers: Servers, body: NewServer) -> dict[str, MCPStatus]:
    """Kept until the directory is closed. Replaces a server of that name."""
    return dict(await servers.add(body.name, body.config))


@of_one.post("/connect", dependencies=MANAGES)
async def connect(servers: Servers, name: NamePath) -> bool:
    """True even if the connection fails: the status says why."""
    await servers.connect(name)
    return True


@of_one.post("/disconnect", dependencies=MANAGES)
async def disconnect(servers: Servers, name: NamePath) -> bool:
    await servers.disconnect(name)
    return True


@of_one.post("/auth", operation_id="mcp.auth.start", dependencies=MANAGES)
async def start_sign_in(servers: Servers, name: NamePath, request: Request) -> SignInPage:
    page = await signing_in.start(servers, name, _redirect_uri(request))
    return SignInPage(authorization_url=page, oauth_state=state_of(page) or "")


@of_one.post("/auth/callback", operation_id="mcp.auth.callback", dependencies=MANAGES)
async def finish_sign_in(servers: Servers, name: NamePath, body: SignInCode) -> MCPStatus:
    """Finishes with the code that the sign-in page gave."""
    return await signing_in.finish(servers, name, body.code)


@of_one.post("/auth/authenticate", operation_id="mcp.auth.authenticate", dependencies=MANAGES)
async def sign_in(servers: Servers, name: NamePath, request: Request) -> MCPStatus:
    """Tells the page to open by the event `mcp.browser.open.failed`, and answers when the sign-in has ended."""
    return await signing_in.run(servers, name, _redirect_uri(request))


@of_one.delete("/auth", operation_id="mcp.auth.remove", dependencies=MANAGES)
async def forget_sign_in(servers: Servers, name: NamePath) -> Forgotten:
    await signing_in.forget(servers, name)
    return Forgotten()


@routes.get(CALLBACK_PATH, include_in_schema=False, dependencies=READS)
async def back_from_sign_in(
    app: AppServices,
    state: Annotated[str, Query()],
    code: Annotated[str | None, Query()] = None,
    iss: Annotated[str | None, Query()] = None,
    error: Annotated[str | None, Query()] = None,
) -> Response:
    """The address to which a sign-in page sends the browser back."""
    answer = signing_in.SignInAnswer(state=state, code=code, issuer=iss, error=error)
    found = await signing_in.finish_from_browser(app.instances.mcp_servers(), app.states, answer)
    status = 200 if isinstance(found, MCPStatusConnected) else 400
    return HTMLResponse(f"<p>{escape(signing_in.page_text(found))}</p>", status)


@routes.get("/experimental/resource", operation_id="experimental.resource.list", dependencies=READS)
async def resources(servers: Servers) -> dict[str, McpResource]:
    """The resources of the connected servers, by `<server>:<name>` in the letters of a command's name."""
    offers = await servers.offers()
    found = [one for offered in offers for one in offered.resources]
    return {
        f"{sanitised(one.server)}:{sanitised(one.name)}": McpResource(
            name=one.name, uri=one.uri, description=one.description, mime_type=one.mime, client=one.server
        )
        for one in found
    }


def _redirect_uri(request: Request) -> str:
    """The redirect address as the user's browser reaches this server."""
    return public_base(request) + CALLBACK_PATH


class McpAnswer(Response):
    """`body`: the request's, already read. `directory`: the one that the request names."""

    def __init__(self, body: bytes, directory: str | None, most_bytes: int) -> None:
        super().__init__()
        self._request_body: bytes | None = body
        self._directory = directory
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from app.api.mcp_server.server import DIRECTORY, answer_over_http

        async def receive_again() -> Message:
            body, self._request_body = self._request_body, None
            return await receive() if body is None else {"type": "http.request", "body": body, "more_body": False}

        scope[DIRECTORY] = self._directory
        await answer_over_http(scope, receive_again, send, max_body_bytes=self._most_bytes)


@served.post("", dependencies=READS)
async def message(request: Request, app: AppServices, where: Directory, message: Annotated[Any, Body()]) -> Response:
    """A message of the protocol is read as strictly as any other body, then by the SDK."""
    await asyncio.to_thread(import_module, "app.api.mcp_server.server")  # the SDK takes most of a second to import
    return McpAnswer(await request.body(), where, app.settings.max_body_bytes)
