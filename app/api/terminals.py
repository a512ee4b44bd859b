"""Terminals: made, listed, changed and removed."""

import asyncio
from dataclasses import replace
from typing import Annotated, Literal

from fastapi import Path, Request
from pydantic import Field

from app.api.audit import CREATED
from app.api.deps import AppServices, CurrentWorkspace, Directory, Here, Who
from app.api.documented import NotFoundError, answer, documented
from app.api.json_route import router
from app.api.roles import READS, WRITES
from app.pty.programs import installed_shells
from app.schema.errors import ServiceError
from app.schema.pty import Pty, PtyInput, PtyShell, PtyTicket, PtyUpdate
from app.server import Server
from app.users.login import TICKET_SECONDS
from app.users.principal import Principal
from app.workspace.workspace import Workspace

routes = router("/pty", 400, tags=["pty"])
routers = (routes,)

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


OF_ONE = {**documented(403), 404: answer("Not found, or another user's", UnknownPtyError)}


@routes.get("/shells", dependencies=READS)
async def shells(where: Directory) -> list[PtyShell]:
    """The shells of this machine."""
    return await asyncio.to_thread(installed_shells)


@routes.get("", operation_id="pty.list", responses=documented(403), dependencies=READS)
async def list_terminals(app: AppServices, who: Who, here: Here) -> list[Pty]:
    """The terminals of a directory whose programs run."""
    found = app.terminals.all(who, here.directory)
    return [info for info in found if info.status == "running"]


@routes.post("", responses=documented(403, 429), dependencies=WRITES)
async def create(request: Request, app: AppServices, who: Who, workspace: CurrentWorkspace, wanted: PtyInput = PtyInput()) -> Pty:
    """A program in a terminal of its own. It is gone, with all that was started in it, when the program exits."""
    return await open_terminal(request, app, who, workspace, wanted, stays=False)


async def open_terminal(
    request: Request, app: Server, who: Principal, workspace: Workspace, wanted: PtyInput, *, stays: bool
) -> Pty:
    config = (await workspace.config()).config
    with_program = wanted if wanted.command else wanted.model_copy(update={"command": config.shell})
    confined = replace(workspace.sandboxed(config), walls=app.instances.walls_of(who))
    made = await app.terminals.create(who, with_program, confined, stays=stays)
    request.scope[CREATED] = made.id
    return made


@routes.get("/{ptyID}", responses=OF_ONE, dependencies=READS)
async def get(app: AppServices, who: Who, where: Directory, pty_id: PtyIdPath) -> Pty:
    return app.terminals.get(who, pty_id).info


@routes.put("/{ptyID}", responses=OF_ONE, dependencies=WRITES)
async def update(app: AppServices, who: Who, where: Directory, pty_id: PtyIdPath, wanted: PtyUpdate) -> Pty:
    """Its title or its size."""
    return app.terminals.update(who, pty_id, wanted)


@routes.delete("/{ptyID}", responses=OF_ONE, dependencies=WRITES)
async def remove(app: AppServices, who: Who, where: Directory, pty_id: PtyIdPath) -> bool:
    """Ends its program and all that was started in it."""
    await app.terminals.remove(who, pty_id)
    return True


@routes.post("/{ptyID}/connect-token", responses=OF_ONE, dependencies=WRITES)
async def connect_token(app: AppServices, who: Who, where: Directory, pty_id: PtyIdPath) -> PtyTicket:
    """A login for one connection, `GET /pty/:ptyID/connect?ticket=…`: a browser's WebSocket can send no header."""
    return issue_ticket(app, who, pty_id)


def issue_ticket(app: Server, who: Principal, pty_id: str) -> PtyTicket:
    app.terminals.own(who, pty_id)
    ticket, _ = app.login.connect_tickets.issue((pty_id, who))
    return PtyTicket(ticket=ticket, expires_in=TICKET_SECONDS)
