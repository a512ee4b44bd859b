"""Looking into a directory: its files found, listed and read. And the first API's terminals: one that is made here stays listed
when its program has exited, until it is removed."""

import asyncio
import mimetypes
import os
from pathlib import PurePath
from typing import Annotated, Literal

from fastapi import Path, Query, Request
from fastapi.responses import Response

from app.api.deps import AppServices, Who, search_place_of, workspace_of
from app.api.errors import Responses, TaggedAnswer, described, described_answer
from app.api.file import allowed_paths, files
from app.api.roles import READS, WRITES, WRITES_WHILE_STOPPING
from app.api.terminals import OutputCursor, PtyIdPath, Ticket, UpgradeRequired, issue_ticket, open_terminal
from app.api.v2.shapes import Located, Place, PlaceLocation, PlaceWorkspace, T, located, router
from app.schema.base import Wire
from app.schema.errors import BadRequest, NotFound
from app.schema.terminal import Pty, PtyInput, PtyTicket, PtyUpdate
from app.server import Server
from app.users.principal import Principal
from app.workspace.browse.content import list_directory, read

routes = router("", "ForbiddenError", tags=["fs"])
terminals = router("/pty", "ForbiddenError", tags=["pty"])
of_terminal = router("/pty/{ptyID}", "ForbiddenError", "PtyNotFoundError", tags=["pty"])
routers = (routes, terminals, of_terminal)

_HARMLESS = {"Content-Security-Policy": "sandbox; default-src 'none'", "X-Content-Type-Options": "nosniff"}
"""A project's page that is opened here must not call this server in the user's name."""


class FileNotFound(NotFound):
    tag = "FileNotFoundError"


class FileSystemEntry(Wire):
    """`path` is relative to the directory; a directory's path ends with `/`."""

    path: str
    type: Literal["file", "directory"]

    @classmethod
    def of(cls, path: str) -> "FileSystemEntry":
        return cls(path=path, type="directory" if path.endswith("/") else "file")


@routes.get("/fs/find", dependencies=READS)
async def find(
    app: AppServices,
    who: Who,
    workspace: PlaceWorkspace,
    query: Annotated[str, Query(max_length=1000)],
    type: Literal["file", "directory"] | None = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Located[list[FileSystemEntry]]:
    """Files and directories whose paths have the letters of the query; the best match first."""
    found = await files.find(search_place_of(app, who, workspace), query, type or "all", limit)
    return located(workspace.location, list(map(FileSystemEntry.of, found)))


@routes.get("/fs/list", operation_id="v2.fs.list", dependencies=READS)
async def entries(
    app: AppServices,
    who: Who,
    workspace: PlaceWorkspace,
    path: Annotated[str, Query(description="From the directory on, or absolute; the directory itself if absent")] = "",
) -> Located[list[FileSystemEntry]]:
    allowed = allowed_paths(app, who, workspace)
    if not await asyncio.to_thread(os.path.isdir, allowed.real(path)):  # False for a name that is too long, too
        raise BadRequest(f"There is no directory {path}", ["path"], path)
    found = await list_directory(allowed, path)
    paths = (f"{node.path}/" if node.type == "directory" else node.path for node in found)
    return located(workspace.location, list(map(FileSystemEntry.of, paths)))


_BYTES = {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
_READ = {**described("FileNotFoundError"), 200: _BYTES}


@routes.get("/fs/read/{path:path}", operation_id="v2.fs.read", response_class=Response, responses=_READ, dependencies=READS)
async def content(app: AppServices, who: Who, workspace: PlaceWorkspace, path: Annotated[str, Path()]) -> Response:
    """The bytes of a file, with the type that its name implies."""
    data = await asyncio.to_thread(read, allowed_paths(app, who, workspace), path)
    if data is None:
        raise FileNotFound(f"There is no file {path}", path=path)
    mime = mimetypes.guess_type(PurePath(path).name)[0]  # a whole path may be an address that names any type: data:a/b,c
    return Response(data, media_type=mime or "application/octet-stream", headers=_HARMLESS)


_UPGRADE: Responses = {426: described_answer("UpgradeRequiredError", TaggedAnswer)}
_WEBSOCKET = {"x-websocket": True}


@terminals.get("", operation_id="v2.pty.list", dependencies=READS)
async def list_terminals(app: AppServices, who: Who, here: PlaceLocation) -> Located[list[Pty]]:
    return located(here, list(app.terminals.all(who, here.directory)))


@terminals.post("", dependencies=WRITES)
async def create(request: Request, app: AppServices, who: Who, workspace: PlaceWorkspace, wanted: PtyInput) -> Located[Pty]:
    """Starts a program in a terminal of its own."""
    return located(workspace.location, await open_terminal(request, app, who, workspace, wanted, stays=True))


@of_terminal.get("", dependencies=READS)
async def get(app: AppServices, who: Who, place: Place, pty_id: PtyIdPath) -> Located[Pty]:
    return await _of(app, who, pty_id, app.terminals.get(who, pty_id).info)


@of_terminal.put("", dependencies=WRITES)
async def update(app: AppServices, who: Who, place: Place, pty_id: PtyIdPath, wanted: PtyUpdate) -> Located[Pty]:
    """Changes the terminal's title or size."""
    return await _of(app, who, pty_id, app.terminals.update(who, pty_id, wanted))


@of_terminal.delete("", status_code=204, dependencies=WRITES)
async def remove(app: AppServices, who: Who, place: Place, pty_id: PtyIdPath) -> None:
    """Ends the terminal's program and all that was started in it."""
    await app.terminals.remove(who, pty_id)


@of_terminal.post("/connect-token", dependencies=WRITES)
async def connect_token(app: AppServices, who: Who, place: Place, pty_id: PtyIdPath) -> Located[PtyTicket]:
    """A login for one connection, `GET /api/pty/:ptyID/connect?ticket=…`: a browser's WebSocket can send no header."""
    return await _of(app, who, pty_id, await issue_ticket(app, who, pty_id))


@of_terminal.get(
    "/connect", operation_id="v2.pty.connect", responses=_UPGRADE, openapi_extra=_WEBSOCKET, dependencies=WRITES_WHILE_STOPPING
)
async def describe_connection(
    app: AppServices, who: Who, place: Place, pty_id: PtyIdPath, cursor: OutputCursor = "", ticket: Ticket = None
) -> bool:
    """A WebSocket at a terminal: what the terminal prints is sent, what is received is typed."""
    app.terminals.own(who, pty_id)
    raise UpgradeRequired


async def _of(app: Server, who: Principal, pty_id: str, value: T) -> Located[T]:
    """With the terminal's own location, whatever the request names."""
    terminal = app.terminals.get(who, pty_id)
    return located((await workspace_of(app, who, terminal.directory)).location, value)
