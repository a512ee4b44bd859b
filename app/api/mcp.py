"""MCP servers: their status, switching them on and off, signing in to them, their resources."""

from collections.abc import Mapping
from html import escape
from typing import Annotated, Literal

import orjson
from fastapi import Depends, Path, Query
from fastapi.responses import HTMLResponse, Response
from pydantic import Field

from app.api.deps import TRUE, Directory, documented, instance_of, json_bytes, wire
from app.api.json_route import ServerRequest, router
from app.api.share import public_base
from app.mcp import signing_in
from app.mcp.redirect import CALLBACK_PATH
from app.mcp.servers import McpServers
from app.mcp.sign_in import state_of
from app.mcp.values import ServerResource
from app.schema.base import Wire
from app.schema.config import McpLocalConfig, McpRemoteConfig
from app.schema.mcp import McpResource, MCPStatus, MCPStatusConnected
from app.tool.mcp_tool import sanitised

routes = router(tags=["mcp"], responses=documented(400, 403))


class NewServer(Wire):
    name: Annotated[str, Field(min_length=1)]
    config: Annotated[McpLocalConfig | McpRemoteConfig, Field(discriminator="type")]


class SignInPage(Wire):
    """Where the user signs in, and the state that the browser comes back with; empty when there is no need to."""

    authorization_url: str
    oauth_state: str


class SignInCode(Wire):
    code: str


class Forgotten(Wire):
    success: Literal[True] = True


NamePath = Annotated[str, Path(alias="name")]


async def _servers(request: ServerRequest, where: Directory) -> McpServers:
    return (await instance_of(request, where)).extensions.mcp


Servers = Annotated[McpServers, Depends(_servers)]
"""Those of the request's directory."""


@routes.get("/mcp", operation_id="mcp.status", response_model=dict[str, MCPStatus])
async def status(servers: Servers) -> Response:
    """Waits for the servers that are connecting."""
    return _by_name(await servers.statuses())


@routes.post("/mcp", operation_id="mcp.add", response_model=dict[str, MCPStatus])
async def add(servers: Servers, body: NewServer) -> Response:
    """Until the directory is closed; one of that name is replaced."""
    return _by_name(await servers.add(body.name, body.config))


@routes.post("/mcp/{name}/connect", operation_id="mcp.connect", response_model=bool, responses=documented(404))
async def connect(servers: Servers, name: NamePath) -> Response:
    """True also if it fails to: the status says why."""
    await servers.connect(name)
    return json_bytes(TRUE)


@routes.post("/mcp/{name}/disconnect", operation_id="mcp.disconnect", response_model=bool, responses=documented(404))
async def disconnect(servers: Servers, name: NamePath) -> Response:
    await servers.disconnect(name)
    return json_bytes(TRUE)


@routes.post("/mcp/{name}/auth", operation_id="mcp.auth.start", response_model=SignInPage, responses=documented(404))
async def start_sign_in(servers: Servers, name: NamePath, request: ServerRequest) -> Response:
    page = await signing_in.start(servers, name, _redirect_uri(request))
    return wire(SignInPage(authorization_url=page, oauth_state=state_of(page) or ""))


@routes.post("/mcp/{name}/auth/callback", operation_id="mcp.auth.callback", response_model=MCPStatus, responses=documented(404))
async def finish_sign_in(servers: Servers, name: NamePath, body: SignInCode) -> Response:
    """With the code that the sign-in page gave."""
    return wire(await signing_in.finish(servers, name, body.code))


@routes.post(
    "/mcp/{name}/auth/authenticate", operation_id="mcp.auth.authenticate", response_model=MCPStatus, responses=documented(404)
)
async def sign_in(servers: Servers, name: NamePath, request: ServerRequest) -> Response:
    """Tells the page to open by the event `mcp.browser.open.failed`, and answers when the user has been there."""
    return wire(await signing_in.run(servers, name, _redirect_uri(request)))


@routes.delete("/mcp/{name}/auth", operation_id="mcp.auth.remove", response_model=Forgotten, responses=documented(404))
async def forget_sign_in(servers: Servers, name: NamePath) -> Response:
    await signing_in.forget(servers, name)
    return wire(Forgotten())


@routes.get(CALLBACK_PATH, include_in_schema=False)
async def back_from_sign_in(
    request: ServerRequest,
    state: Annotated[str, Query()],
    code: Annotated[str | None, Query()] = None,
    iss: Annotated[str | None, Query()] = None,
    error: Annotated[str | None, Query()] = None,
) -> Response:
    """Where a browser comes back to from a sign-in page."""
    answer = signing_in.SignInAnswer(state=state, code=code, issuer=iss, error=error)
    directories = request.services.directories
    found = await signing_in.finish_from_browser(directories.instances.mcp_servers(), directories.states, answer)
    status = 200 if isinstance(found, MCPStatusConnected) else 400
    return HTMLResponse(f"<p>{escape(signing_in.page_text(found))}</p>", status)


@routes.get("/experimental/resource", operation_id="experimental.resource.list", response_model=dict[str, McpResource])
async def resources(servers: Servers) -> Response:
    """Of the servers that are connected, by `<server>:<name>` in the letters of a command's name."""
    offers = await servers.offers()
    found = [one for offered in offers for one in offered.resources]
    return _by_name({f"{sanitised(one.server)}:{sanitised(one.name)}": _resource(one) for one in found})


def _by_name(values: Mapping[str, Wire]) -> Response:
    return json_bytes(orjson.dumps({name: value.wire() for name, value in values.items()}))


def _resource(resource: ServerResource) -> McpResource:
    return McpResource(
        name=resource.name, uri=resource.uri, description=resource.description, mime_type=resource.mime, client=resource.server
    )


def _redirect_uri(request: ServerRequest) -> str:
    """As the user's browser reaches this server."""
    return public_base(request) + CALLBACK_PATH
