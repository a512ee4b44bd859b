"""Clients at a terminal, over WebSockets.

A client is sent what the program prints as text, and, as binary, `\\0` and `{"cursor":N}`: so many UTF-16 units were printed
before what comes next. It is sent that behind what it missed, and when it read too slowly and something was left out. Text and
binary messages of its own are typed. With `cursor` it is sent what was printed from there on, with -1 only what comes.
"""

import asyncio
import re
from collections.abc import Coroutine
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, WebSocket
from starlette.websockets import WebSocketDisconnect

from app.api.deps import AppServices, Directory, Who
from app.api.documented import documented
from app.api.errors import Refusal
from app.api.json_route import router
from app.api.roles import ANSWERS, Permitted, principal_of, require_access
from app.api.services import services_of
from app.api.terminals import OF_ONE, PtyIdPath, UpgradeRequired
from app.pty.terminal import InputFull, OutputPosition, Terminal
from app.schema.errors import ServiceError

routes = router("", 400, tags=["pty"])
sockets = APIRouter()
routers = (routes, sockets)

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


@routes.get("/pty/{ptyID}/connect", operation_id="pty.connect", responses={**OF_ONE, **documented(426)}, dependencies=ANSWERS)
async def describe_connection(
    app: AppServices, who: Who, where: Directory, pty_id: PtyIdPath, cursor: OutputCursor = "", ticket: Ticket = None
) -> bool:
    """A WebSocket at a terminal: what it prints is sent, what is received is typed."""
    app.terminals.own(who, pty_id)
    raise UpgradeRequired


@sockets.websocket("/pty/{ptyID}/connect")
@sockets.websocket("/api/pty/{ptyID}/connect")
async def connect(socket: WebSocket) -> None:
    try:
        terminal = _own_terminal(socket)
    except ServiceError as error:
        await Refusal(error.status, error.name, error.message)(socket.scope, socket.receive, socket.send)
        return
    await socket.accept()
    closing = await _first_end(socket, terminal) if terminal.is_running else ALREADY_EXITED
    if closing is not None:
        with suppress(WebSocketDisconnect):
            await socket.close(*closing)


def _own_terminal(socket: WebSocket) -> Terminal:
    """Raises ReadOnly, and what `Terminals.own` raises."""
    principal = principal_of(socket.scope)
    require_access(principal, Permitted.WRITER)
    return services_of(socket).terminals.own(principal, socket.path_params["ptyID"])


async def _first_end(socket: WebSocket, terminal: Terminal) -> CloseFrame | None:
    """How the connection is to be closed; None when the client has gone."""
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
        async for shown in terminal.watch(_cursor(socket.query_params.get("cursor", ""))):
            if isinstance(shown, OutputPosition):
                await socket.send_bytes(b'\0{"cursor":%d}' % shown.units)
            else:
                await socket.send_text(shown)
    except WebSocketDisconnect:
        return None
    return ENDED


async def _while_logged_in(socket: WebSocket) -> CloseFrame:
    """Until the login holds no more: its token was revoked or has expired, its user was removed or changed."""
    app, given, principal = services_of(socket), socket.headers.get("authorization"), principal_of(socket.scope)
    while await app.login.still_holds(given, principal):  # noqa: ASYNC110  a command, or time, makes that end
        await asyncio.sleep(app.heartbeat_seconds)
    return LOGGED_OUT


def _cursor(given: str) -> int:
    return int(given) if _CURSOR.fullmatch(given) else 0
