"""What routes share: the directory that a request names, and the form of the answers."""

from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import Depends, Header, Path, Query, Request
from fastapi.responses import Response

from app.api.access import directory_to_enter
from app.api.json_route import ServerRequest
from app.project.location import Location
from app.schema.base import AnyID, Wire
from app.schema.errors import RequestPart
from app.schema.session import Session
from app.telemetry.log_lines import DIRECTORY_OF_LINES
from app.tool.search.ripgrep import SearchPlace
from app.workspace.instance import Instance
from app.workspace.workspace import Workspace


async def named_directory(
    request: Request,
    directory: Annotated[str | None, Query(description="Directory to work in; the server's own if absent")] = None,
) -> str | None:
    """By the query, else by the header that OpenCode's clients send."""
    if directory:
        return directory
    header = request.headers.get("x-opencode-directory")
    return unquote(header) if header else None


Directory = Annotated[str | None, Depends(named_directory)]
UserAgent = Annotated[str, Header(alias="User-Agent", include_in_schema=False)]
SessionIdPath = Annotated[str, Path(alias="sessionID", pattern="^ses")]
MessageIdPath = Annotated[str, Path(alias="messageID", pattern="^msg")]
QueuedIdPath = Annotated[str, Path(alias="queuedID", pattern="^qpr")]
PartIdPath = Annotated[AnyID, Path(alias="partID")]


async def workspace_of(request: ServerRequest, directory: str | None) -> Workspace:
    """The directory that a request names, else the server's own. Raises DirectoryForbidden for who may not work there."""
    directory = await directory_to_enter(request.services, request.principal, directory)
    workspaces = request.services.directories.instances.workspaces
    workspace = await workspaces.get(directory)
    DIRECTORY_OF_LINES.set(workspace.location.directory)
    workspaces.require_admitted(request.principal, workspace.directories[-1])
    return workspace


async def search_place_of(request: ServerRequest, directory: str | None) -> SearchPlace:
    """The same for a search: what others keep there is not found."""
    workspace = await workspace_of(request, directory)
    return workspace.search_place(request.services.directories.instances.walls_of(request.principal))


async def location_of(request: ServerRequest, directory: str | None) -> Location:
    return (await workspace_of(request, directory)).location


async def instance_of(request: ServerRequest, directory: str | None) -> Instance:
    """The same with all that a turn needs."""
    return await _instance(request, directory, request.principal.name)


async def session_location(request: ServerRequest, session_id: str, directory: str | None) -> Location:
    """The place that a request names, else the one that the session was created in."""
    return await location_of(request, directory or (await request.services.sessions.store.session(session_id)).directory)


async def session_instance(request: ServerRequest, session_id: str, directory: str | None) -> Instance:
    """The same place with all that a turn needs, the models of the session's owner. Raises NotFound for an unknown session."""
    return await instance_of_session(request, await request.services.sessions.store.session(session_id), directory)


async def instance_of_session(request: ServerRequest, session: Session, directory: str | None) -> Instance:
    return await _instance(request, directory or session.directory, session.owner or "")


async def _instance(request: ServerRequest, directory: str | None, owner: str) -> Instance:
    entered = await directory_to_enter(request.services, request.principal, directory)
    instance = await request.services.directories.instances.get(entered, owner)
    DIRECTORY_OF_LINES.set(instance.location.directory)
    return instance


def json_bytes(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")


def wire(value: Wire) -> Response:
    return json_bytes(value.wire_json())


TRUE = b"true"


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers that a route gives, for the API's description."""
    return {status: _ERRORS[status] for status in statuses}


class BadRequestData(Wire):
    """`kind`: the part of the request that is wrong."""

    message: str
    kind: RequestPart | None = None
    received: Any = None


class BadRequestError(Wire):
    """OpenCode 1.1's clients read `errors` or `error`, both are the same list; those of 1.18 read `data`."""

    name: Literal["BadRequest"]
    data: BadRequestData
    errors: list[dict[str, Any]]
    success: Literal[False]


class ErrorData(Wire):
    message: str


class NamedError(Wire):
    name: str
    data: ErrorData


class NotFoundError(Wire):
    name: Literal["NotFoundError"]
    data: ErrorData


_ERRORS: dict[int, dict[str, Any]] = {
    400: {"description": "Bad request", "model": BadRequestError},
    403: {"description": "Not allowed", "model": NamedError},
    404: {"description": "Not found", "model": NotFoundError},
    409: {"description": "Busy, or used for something else", "model": NamedError},
    413: {"description": "Too large", "model": NamedError},
    426: {"description": "Upgrade required", "model": NamedError},
    429: {"description": "Too many", "model": NamedError},
    507: {"description": "The project's sessions take all the room that they may", "model": NamedError},
}
