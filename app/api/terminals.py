"""Terminals: made, listed, changed and removed."""

import asyncio
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import Path
from fastapi.responses import Response
from pydantic import Field

from app.api.audit import CREATED
from app.api.connect_tickets import LIFETIME_SECONDS
from app.api.deps import TRUE, Directory, NotFoundError, documented, json_bytes, location_of, wire, workspace_of
from app.api.json_route import ServerRequest, router
from app.api.login import Login
from app.pty.shells import installed_shells
from app.schema.errors import ServiceError
from app.schema.pty import Pty, PtyInput, PtyShell, PtyTicket, PtyUpdate
from app.session.rows import json_array

routes = router(prefix="/pty", tags=["pty"])

PtyIdPath = Annotated[str, Path(alias="ptyID", pattern="^pty")]


class UpgradeRequired(ServiceError):
    status = 426
    name = "UpgradeRequiredError"

    def __init__(self) -> None:
        super().__init__("Connect to a terminal with a WebSocket.")


class UnknownPtyError(NotFoundError):
    """As older clients read it, and newer ones."""

    tag: Annotated[Literal["PtyNotFoundError"], Field(alias="_tag")]
    pty_id: str
    message: str


OF_ONE: dict[int | str, dict[str, Any]] = {
    **documented(400, 403),
    404: {"description": "Not found, or another user's", "model": UnknownPtyError},
}


@routes.get("/shells", operation_id="pty.shells", response_model=list[PtyShell], responses=documented(400))
async def shells(request: ServerRequest, where: Directory) -> Response:
    """The shells of this machine."""
    found = await asyncio.to_thread(installed_shells)
    return json_bytes(json_array([shell.wire_json() for shell in found]))


@routes.get("", operation_id="pty.list", response_model=list[Pty], responses=documented(400, 403))
async def list_terminals(request: ServerRequest, where: Directory) -> Response:
    """The terminals of a directory whose programs run."""
    found = request.services.terminals.all(request.principal, (await location_of(request, where)).directory)
    return json_bytes(json_array([info.wire_json() for info in found if info.status == "running"]))


@routes.post("", operation_id="pty.create", response_model=Pty, responses=documented(400, 403, 429))
async def create(request: ServerRequest, where: Directory, wanted: PtyInput = PtyInput()) -> Response:
    """A program in a terminal of its own. It is gone, with all that was started in it, when the program exits."""
    return wire(await open_terminal(request, where, wanted, stays=False))


async def open_terminal(request: ServerRequest, where: str | None, wanted: PtyInput, *, stays: bool) -> Pty:
    workspace = await workspace_of(request, where)
    config = (await workspace.config()).config
    with_program = wanted if wanted.command else wanted.model_copy(update={"command": config.shell})
    walls = request.services.directories.instances.walls_of(request.principal)
    confined = replace(workspace.sandboxed(config), walls=walls)
    made = await request.services.terminals.create(request.principal, with_program, confined, stays=stays)
    request.scope[CREATED] = made.id
    return made


@routes.get("/{ptyID}", operation_id="pty.get", response_model=Pty, responses=OF_ONE)
async def get(request: ServerRequest, where: Directory, pty_id: PtyIdPath) -> Response:
    return wire(request.services.terminals.get(request.principal, pty_id).info)


@routes.put("/{ptyID}", operation_id="pty.update", response_model=Pty, responses=OF_ONE)
async def update(request: ServerRequest, where: Directory, pty_id: PtyIdPath, wanted: PtyUpdate) -> Response:
    """Its title or its size."""
    return wire(request.services.terminals.update(request.principal, pty_id, wanted))


@routes.delete("/{ptyID}", operation_id="pty.remove", response_model=bool, responses=OF_ONE)
async def remove(request: ServerRequest, where: Directory, pty_id: PtyIdPath) -> Response:
    """Ends its program and all that was started in it."""
    await request.services.terminals.remove(request.principal, pty_id)
    return json_bytes(TRUE)


@routes.post("/{ptyID}/connect-token", operation_id="pty.connectToken", response_model=PtyTicket, responses=OF_ONE)
async def connect_token(request: ServerRequest, where: Directory, pty_id: PtyIdPath) -> Response:
    """A login for one connection, `GET /pty/:ptyID/connect?ticket=…`: a browser's WebSocket can send no header."""
    return wire(issue_ticket(request, pty_id))


def issue_ticket(request: ServerRequest, pty_id: str) -> PtyTicket:
    request.services.terminals.own(request.principal, pty_id)
    login: Login = request.app.state.login
    return PtyTicket(ticket=login.connect_tickets.issue(request.principal, pty_id), expires_in=LIFETIME_SECONDS)
