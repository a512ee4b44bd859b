"""Terminals: those of the first API. One that is made here stays listed when its program has exited, until it is removed."""

from fastapi.responses import Response

from app.api.deps import workspace_of
from app.api.json_route import ServerRequest
from app.api.terminal_connection import OutputCursor, Ticket
from app.api.terminals import PtyIdPath, UpgradeRequired, issue_ticket, open_terminal
from app.api.v2.answers import Located, located, no_content, router
from app.api.v2.errors import ForbiddenError, PtyNotFoundError, TaggedAnswer, described
from app.api.v2.place import Place, place_of
from app.schema.base import Wire
from app.schema.pty import Pty, PtyInput, PtyTicket, PtyUpdate
from app.session.rows import json_array

routes = router(tags=["pty"])


@routes.get("/pty", operation_id="v2.pty.list", response_model=Located[list[Pty]], responses=described(ForbiddenError))
async def list_terminals(request: ServerRequest, place: Place) -> Response:
    location = await place_of(request, place)
    found = request.services.terminals.all(request.principal, location.directory)
    return located(location, json_array([info.wire_json() for info in found]))


@routes.post("/pty", operation_id="v2.pty.create", response_model=Located[Pty], responses=described(ForbiddenError))
async def create(request: ServerRequest, place: Place, wanted: PtyInput) -> Response:
    """A program in a terminal of its own."""
    made = await open_terminal(request, place, wanted, stays=True)
    return located(await place_of(request, place), made.wire_json())


_ERRORS = described(ForbiddenError, PtyNotFoundError)


@routes.get("/pty/{ptyID}", operation_id="v2.pty.get", response_model=Located[Pty], responses=_ERRORS)
async def get(request: ServerRequest, place: Place, pty_id: PtyIdPath) -> Response:
    return await _of(request, pty_id, request.services.terminals.get(request.principal, pty_id).info)


@routes.put("/pty/{ptyID}", operation_id="v2.pty.update", response_model=Located[Pty], responses=_ERRORS)
async def update(request: ServerRequest, place: Place, pty_id: PtyIdPath, wanted: PtyUpdate) -> Response:
    """Its title or its size."""
    return await _of(request, pty_id, request.services.terminals.update(request.principal, pty_id, wanted))


@routes.delete("/pty/{ptyID}", operation_id="v2.pty.remove", status_code=204, responses=_ERRORS)
async def remove(request: ServerRequest, place: Place, pty_id: PtyIdPath) -> Response:
    """Ends its program and all that was started in it."""
    await request.services.terminals.remove(request.principal, pty_id)
    return no_content()


@routes.post(
    "/pty/{ptyID}/connect-token", operation_id="v2.pty.connectToken", response_model=Located[PtyTicket], responses=_ERRORS
)
async def connect_token(request: ServerRequest, place: Place, pty_id: PtyIdPath) -> Response:
    """A login for one connection, `GET /api/pty/:ptyID/connect?ticket=…`: a browser's WebSocket can send no header."""
    return await _of(request, pty_id, issue_ticket(request, pty_id))


@routes.get(
    "/pty/{ptyID}/connect",
    operation_id="v2.pty.connect",
    response_model=bool,
    responses={**_ERRORS, 426: {"description": "UpgradeRequiredError", "model": TaggedAnswer}},
    openapi_extra={"x-websocket": True},
)
async def describe_connection(
    request: ServerRequest, place: Place, pty_id: PtyIdPath, cursor: OutputCursor = "", ticket: Ticket = None
) -> Response:
    """A WebSocket at a terminal: what it prints is sent, what is received is typed."""
    request.services.terminals.own(request.principal, pty_id)
    raise UpgradeRequired


async def _of(request: ServerRequest, pty_id: str, value: Wire) -> Response:
    """Located where the terminal is, whatever the request names."""
    terminal = request.services.terminals.get(request.principal, pty_id)
    return located((await workspace_of(request, terminal.directory)).location, value.wire_json())
