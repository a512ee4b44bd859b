"""Terminals: made, listed, changed and removed; and clients at a terminal, over WebSockets.

A client is sent the program's output as text, and cursors as binary, `\\0` and `{"cursor":N}`: N UTF-16 units were printed
before what comes next. A cursor comes after the output that the client missed, and where output was left out for a slow client.
Text and binary messages of the client are typed. With `cursor` it is sent the output from there on, with -1 only new output.
"""

import asyncio
import re
from collections.abc import Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Path, Query, Request, WebSocket
from pydantic import Field
from starlette.websockets import WebSocketDisconnect

from app.api.audit import CREATED
from app.api.deps import AppServices, CurrentWorkspace, Directory, Here, Who
from app.api.errors import NotFoundError, Refusal, described_answer, documented
from app.api.json_route import router
from app.api.roles import READS, WRITES, WRITES_WHILE_STOPPING, Permitted, principal_of, require_access, services_of
from app.schema.errors import ServiceError
from app.schema.terminal import Pty, PtyInput, PtyShell, PtyTicket, PtyUpdate
from app.server import Server
from app.users.login import TICKET_SECONDS
from app.users.principal import Principal
from app.workspace.terminals.programs import installed_shells
from app.workspace.terminals.terminal import InputFull, Terminal
from app.workspace.workspace import Workspace

routes = router("/pty", 400, tags=["pty"])
sockets = APIRouter()
routers = (routes, sockets)

PtyIdPath = Annotated[str, Path(alias="ptyID", pattern="^pty")]


class UpgradeRequired(ServiceError):
    status = 426
    name = "UpgradeRequiredError"
    text = "Connect to a terminal with a WebSocket."


class UnknownPtyError(NotFoundError):
    """The error in the form that older clients read, and that newer ones read."""

    tag: Annotated[Literal["PtyNotFoundError"], Field(alias="_tag")]
    pty_id: str
    message: str


OF_ONE = {**documented(403), 404: described_answer("Not found, or another user's", UnknownPtyError)}


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
    """Starts a program in a terminal of its own. When it exits, the terminal is gone, with all that was started in it."""
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
    """Changes the terminal's title or size."""
    return app.terminals.update(who, pty_id, wanted)


@routes.delete("/{ptyID}", responses=OF_ONE, dependencies=WRITES)
async def remove(app: AppServices, who: Who, where: Directory, pty_id: PtyIdPath) -> bool:
    """Ends the terminal's program and all that was started in it."""
    await app.terminals.remove(who, pty_id)
    return True


@routes.post("/{ptyID}/connect-token", responses=OF_ONE, dependencies=WRITES)
async def connect_token(app: AppServices, who: Who, where: Directory, pty_id: PtyIdPath) -> PtyTicket:
    """A login for one connection, `GET /pty/:ptyID/connect?ticket=…`: a browser's WebSocket can send no header."""
    return await issue_ticket(app, who, pty_id)


async def issue_ticket(app: Server, who: Principal, pty_id: str) -> PtyTicket:
    app.terminals.own(who, pty_id)
    ticket, _ = await app.login.connect_tickets.issue((pty_id, who))
    return PtyTicket(ticket=ticket, expires_in=TICKET_SECONDS)


_CURSOR = re.compile(r"-?\d{1,15}")


class CloseFrame(NamedTuple):
    code: int
    reason: str = ""


ENDED = CloseFrame(1000)
ALREADY_EXITED = CloseFrame(4404, "session exited")
LOGGED_OUT = CloseFrame(1008, "the login holds no more")
INPUT_FULL = CloseFrame(1013, "the program does not read what is typed")

OutputCursor = Annotated[
    str, Query(description="From where on what was printed is sent: a position, -1 for none of it, else all")
]
Ticket = Annotated[str | None, Query(description="From POST /pty/:ptyID/connect-token, instead of a login in a header")]


@routes.get(
    "/{ptyID}/connect", operation_id="pty.connect", responses={**OF_ONE, **documented(426)}, dependencies=WRITES_WHILE_STOPPING
)
async def describe_connection(
    app: AppServices, who: Who, where: Directory, pty_id: PtyIdPath, cursor: OutputCursor = "", ticket: Ticket = None
) -> bool:
    """A WebSocket at a terminal: what the terminal prints is sent, what is received is typed."""
    app.terminals.own(who, pty_id)
    raise UpgradeRequired


@sockets.websocket("/pty/{ptyID}/connect")
@sockets.websocket("/api/pty/{ptyID}/connect")
async def connect(socket: WebSocket) -> None:
    principal = principal_of(socket.scope)
    try:
        require_access(principal, Permitted.WRITER)
        terminal = services_of(socket).terminals.own(principal, socket.path_params["ptyID"])
    except ServiceError as error:
        await Refusal(error.status, error.name, error.message)(socket.scope, socket.receive, socket.send)
        return
    await socket.accept()
    closing = await _first_end(socket, terminal) if terminal.is_running else ALREADY_EXITED
    if closing is not None:
        with suppress(WebSocketDisconnect):
            await socket.close(*closing)


async def _first_end(socket: WebSocket, terminal: Terminal) -> CloseFrame | None:
    """How the connection is to be closed; None when the client has disconnected."""
    work: tuple[Coroutine[Any, Any, CloseFrame | None], ...] = (
        _type(socket, terminal),
        _show(socket, terminal),
        _while_logged_in(socket),
    )
    tasks = [asyncio.create_task(each, name=f"connection to {terminal.info.id}") for each in work]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task.result() for task in tasks if task in done)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _type(socket: WebSocket, terminal: Terminal) -> CloseFrame | None:
    while (message := await socket.receive())["type"] == "websocket.receive":
        try:
            terminal.program.write(message.get("bytes") or (message.get("text") or "").encode())
        except InputFull:
            return INPUT_FULL
    return None


async def _show(socket: WebSocket, terminal: Terminal) -> CloseFrame | None:
    try:
        given = socket.query_params.get("cursor", "")
        async for shown in terminal.watch(int(given) if _CURSOR.fullmatch(given) else 0):
            if isinstance(shown, int):
                await socket.send_bytes(b'\0{"cursor":%d}' % shown)
            else:
                await socket.send_text(shown)
    except WebSocketDisconnect:
        return None
    return ENDED


async def _while_logged_in(socket: WebSocket) -> CloseFrame:
    """Returns when the login has ended: its token was revoked or has expired, its user was removed or changed."""
    app, given, principal = services_of(socket), socket.headers.get("authorization"), principal_of(socket.scope)
    while await app.login.still_holds(given, principal):  # noqa: ASYNC110  a command, or time, makes that end
        await asyncio.sleep(app.choices.heartbeat_seconds)
    return LOGGED_OUT
