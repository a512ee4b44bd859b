"""Terminals: those of the first API. One that is made here stays listed when its program has exited, until it is removed."""

from fastapi import Request

from app.api.deps import AppServices, Who, workspace_of
from app.api.documented import Responses, answer
from app.api.roles import ANSWERS, READS, WRITES
from app.api.terminal_connection import OutputCursor, Ticket
from app.api.terminals import PtyIdPath, UpgradeRequired, issue_ticket, open_terminal
from app.api.v2.errors import ForbiddenError, PtyNotFoundError, TaggedAnswer
from app.api.v2.shapes import Located, Place, PlaceLocation, PlaceWorkspace, T, located, router
from app.schema.terminal import Pty, PtyInput, PtyTicket, PtyUpdate
from app.server import Server
from app.users.users import Principal

routes = router("/pty", ForbiddenError, tags=["pty"])
of_one = router("/pty/{ptyID}", ForbiddenError, PtyNotFoundError, tags=["pty"])
routers = (routes, of_one)

_UPGRADE: Responses = {426: answer("UpgradeRequiredError", TaggedAnswer)}
_WEBSOCKET = {"x-websocket": True}


@routes.get("", operation_id="v2.pty.list", dependencies=READS)
async def list_terminals(app: AppServices, who: Who, here: PlaceLocation) -> Located[list[Pty]]:
    return located(here, list(app.terminals.all(who, here.directory)))


@routes.post("", dependencies=WRITES)
async def create(request: Request, app: AppServices, who: Who, workspace: PlaceWorkspace, wanted: PtyInput) -> Located[Pty]:
    """A program in a terminal of its own."""
    return located(workspace.location, await open_terminal(request, app, who, workspace, wanted, stays=True))


@of_one.get("", dependencies=READS)
async def get(app: AppServices, who: Who, place: Place, pty_id: PtyIdPath) -> Located[Pty]:
    return await _of(app, who, pty_id, app.terminals.get(who, pty_id).info)


@of_one.put("", dependencies=WRITES)
async def update(app: AppServices, who: Who, place: Place, pty_id: PtyIdPath, wanted: PtyUpdate) -> Located[Pty]:
    """Its title or its size."""
    return await _of(app, who, pty_id, app.terminals.update(who, pty_id, wanted))


@of_one.delete("", status_code=204, dependencies=WRITES)
async def remove(app: AppServices, who: Who, place: Place, pty_id: PtyIdPath) -> None:
    """Ends its program and all that was started in it."""
    await app.terminals.remove(who, pty_id)


@of_one.post("/connect-token", dependencies=WRITES)
async def connect_token(app: AppServices, who: Who, place: Place, pty_id: PtyIdPath) -> Located[PtyTicket]:
    """A login for one connection, `GET /api/pty/:ptyID/connect?ticket=…`: a browser's WebSocket can send no header."""
    return await _of(app, who, pty_id, issue_ticket(app, who, pty_id))


@of_one.get("/connect", operation_id="v2.pty.connect", responses=_UPGRADE, openapi_extra=_WEBSOCKET, dependencies=ANSWERS)
async def describe_connection(
    app: AppServices, who: Who, place: Place, pty_id: PtyIdPath, cursor: OutputCursor = "", ticket: Ticket = None
) -> bool:
    """A WebSocket at a terminal: what it prints is sent, what is received is typed."""
    app.terminals.own(who, pty_id)
    raise UpgradeRequired


async def _of(app: Server, who: Principal, pty_id: str, value: T) -> Located[T]:
    """Located where the terminal is, whatever the request names."""
    terminal = app.terminals.get(who, pty_id)
    return located((await workspace_of(app, who, terminal.directory)).location, value)
