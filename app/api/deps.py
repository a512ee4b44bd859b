"""The arguments of routes: services, the principal, the directory or session that a request names, and the cursors of pages of
all sessions' messages or parts."""

from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Header, Path, Query, Request
from fastapi.responses import Response

from app.api.roles import directory_to_enter, principal_of, services_of
from app.events.bus.base import NEVER_GIVEN, read_number
from app.events.telemetry.log_lines import DIRECTORY_OF_LINES
from app.project.location import Location
from app.schema.base import AnyID
from app.schema.errors import BadRequest, DirectoryForbidden
from app.schema.session import Session
from app.server import Server
from app.tools.search import SearchPlace
from app.users.principal import Principal
from app.workspace.instance import Instance
from app.workspace.workspace import Workspace

UserAgent = Annotated[str, Header(alias="User-Agent", include_in_schema=False)]
SessionIdPath = Annotated[str, Path(alias="sessionID", pattern="^ses")]
MessageIdPath = Annotated[str, Path(alias="messageID", pattern="^msg")]
QueuedIdPath = Annotated[str, Path(alias="queuedID", pattern="^qpr")]
PartIdPath = Annotated[AnyID, Path(alias="partID")]


async def _services(request: Request) -> Server:
    return services_of(request)


async def _principal(request: Request) -> Principal:
    return principal_of(request.scope)


AppServices = Annotated[Server, Depends(_services)]
Who = Annotated[Principal, Depends(_principal)]


DirectoryQuery = Annotated[str | None, Query(alias="directory", description="Directory to work in; the server's own if absent")]


async def named_directory(request: Request, where: DirectoryQuery = None) -> str | None:
    """The directory in the query, else in the header that OpenCode's clients send. Its newer SDK moves the header's encoded value
    to the query as it is."""
    if where:
        return where if where.startswith("/") else unquote(where)
    header = request.headers.get("x-opencode-directory")
    return unquote(header) if header else None


Directory = Annotated[str | None, Depends(named_directory)]


def public_base(request: Request) -> str:
    """OPENSESSION_PUBLIC_URL, else the address that this request came to."""
    return (services_of(request).settings.public_url or str(request.base_url)).rstrip("/")


# For both APIs: the second names a directory in its own way, and calls these with it.


async def workspace_of(app: AppServices, who: Who, directory: Directory) -> Workspace:
    """The directory that a request names, else the server's own. Raises DirectoryForbidden for who may not work there."""
    directory = await directory_to_enter(app, who, directory)
    workspaces = app.workspaces
    workspace = await workspaces.get(directory)
    DIRECTORY_OF_LINES.set(workspace.location.directory)
    workspaces.require_admitted(who, workspace.directories[-1])
    return workspace


async def location_of(app: AppServices, who: Who, directory: Directory) -> Location:
    return (await workspace_of(app, who, directory)).location


async def instance_of(app: Server, who: Principal, directory: str | None, owner: str | None = None) -> Instance:
    """The instance of the directory, with the models of the `owner`: the principal if that is None."""
    entered = await directory_to_enter(app, who, directory)
    instance = await app.instances.get(entered, who.name if owner is None else owner)
    DIRECTORY_OF_LINES.set(instance.location.directory)
    return instance


async def instance_of_session(app: Server, who: Principal, session: Session, directory: str | None) -> Instance:
    return await instance_of(app, who, directory or session.directory, session.owner or "")


def search_place_of(app: Server, who: Principal, workspace: Workspace) -> SearchPlace:
    """Where to search; what others keep in the directory is not found."""
    return workspace.search_place(app.instances.walls_of(who))


# For the first API.


async def _session_place(app: AppServices, who: Who, session_id: SessionIdPath, directory: Directory) -> Location:
    """The place that a request names, else the one that the session was created in."""
    return await location_of(app, who, directory or (await app.store.session(session_id)).directory)


async def _stored_place(app: AppServices, who: Who, session_id: SessionIdPath, directory: Directory) -> Location:
    """As `_session_place`, for what changes records alone: the session's own directory may be gone, also with its worktree."""
    try:
        return await _session_place(app, who, session_id, directory)
    except (BadRequest, DirectoryForbidden) as error:
        session = await app.store.session(session_id)
        is_gone = isinstance(error, BadRequest) or app.workspaces.worktree_places.was_removed(session.directory)
        if directory not in (None, session.directory) or not is_gone:
            raise
        return Location(session.directory, session.project_id, session.directory, is_git=False)


async def _session_instance(app: AppServices, who: Who, session_id: SessionIdPath, directory: Directory) -> Instance:
    """The instance of the session's place, with the models of the session's owner. Raises NotFound for an unknown session."""
    return await instance_of_session(app, who, await app.store.session(session_id), directory)


async def _instance(app: AppServices, who: Who, directory: Directory) -> Instance:
    return await instance_of(app, who, directory)


CurrentWorkspace = Annotated[Workspace, Depends(workspace_of)]
Here = Annotated[Location, Depends(location_of)]
CurrentInstance = Annotated[Instance, Depends(_instance)]
SessionPlace = Annotated[Location, Depends(_session_place)]
StoredPlace = Annotated[Location, Depends(_stored_place)]
SessionInstance = Annotated[Instance, Depends(_session_instance)]


def json_bytes(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """A body that is JSON already: pages of stored rows."""
    return Response(body, status, headers, media_type="application/json")


NEXT_CURSOR = "X-Next-Cursor"
CURSOR_PATTERN = r"^[\w-]{1,40}$"


def page_size(limit: float | None, cursor: str | None) -> int | None:
    """None: all."""
    if limit is None:
        return None if cursor is None else 100
    return max(int(min(limit, 1_000_000)), 1)


class PageCursors:
    """Sealed for members, as event ids are: the numbers would show how much others do."""

    def __init__(self, app: Server, who: Principal, field: str, source: str) -> None:
        """`field` takes a cursor that `source` gave."""
        self._field, self._source = field, source
        name = who.visible_owner
        self._sealed = None if name is None else app.secret.cursors(name)

    def write(self, seq: int) -> str:
        return self._sealed.seal(seq).decode() if self._sealed else str(seq)

    def header(self, seq: int | None) -> dict[str, str] | None:
        return None if seq is None else {NEXT_CURSOR: self.write(seq)}

    def read(self, cursor: str) -> int:
        """Raises BadRequest."""
        seq = self._sealed.open(cursor).seq if self._sealed else read_number(cursor)
        if seq == NEVER_GIVEN:
            raise BadRequest(f"{self._field} is a cursor from {self._source}", [self._field], cursor)
        return seq
