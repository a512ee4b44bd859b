"""The place that a request names: `location[directory]`, else the header that OpenCode's clients send, else the server's own."""

from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Query, Request

from app.api.access import principal_of
from app.api.deps import SessionIdPath, instance_of, instance_of_session, workspace_of
from app.api.services import services_of
from app.project.location import Location
from app.schema.base import Wire
from app.schema.errors import BadRequest
from app.workspace.instance import Instance
from app.workspace.workspace import Workspace


class PlaceProject(Wire):
    """`directory`: the root of its checkout, `/` outside git."""

    id: str
    directory: str


class LocationInfo(Wire):
    directory: str
    project: PlaceProject

    @classmethod
    def of(cls, location: Location) -> "LocationInfo":
        project = PlaceProject(id=location.project_id, directory=location.worktree)
        return cls(directory=location.directory, project=project)


async def named_place(
    request: Request,
    directory: Annotated[str | None, Query(alias="location[directory]", description="Directory to work in")] = None,
    workspace: Annotated[str | None, Query(alias="location[workspace]", description="There are none")] = None,
    location: Annotated[str | None, Query(include_in_schema=False)] = None,
) -> str | None:
    """Raises BadRequest for a workspace: OpenCode makes them elsewhere than in the directories that a server works in."""
    if location is not None:
        raise BadRequest("A location is named by location[directory]=…", ["location"], location)
    if workspace or request.headers.get("x-opencode-workspace"):
        raise BadRequest("There are no workspaces here; leave it out", ["location", "workspace"], workspace)
    header = request.headers.get("x-opencode-directory")
    return directory or (unquote(header) if header else None)


Place = Annotated[str | None, Depends(named_place)]


async def _workspace(request: Request, place: Place) -> Workspace:
    """Raises DirectoryForbidden, BadRequest."""
    return await workspace_of(services_of(request), principal_of(request.scope), place)


PlaceWorkspace = Annotated[Workspace, Depends(_workspace)]


async def _here(request: Request, place: Place) -> Location:
    return (await _workspace(request, place)).location


async def _instance(request: Request, place: Place) -> Instance:
    return await instance_of(services_of(request), principal_of(request.scope), place)


async def _session_instance(request: Request, session_id: SessionIdPath) -> Instance:
    """Where the session was created, whatever the request names."""
    app = services_of(request)
    return await instance_of_session(app, principal_of(request.scope), await app.store.session(session_id), None)


PlaceLocation = Annotated[Location, Depends(_here)]
IN_PLACE = [Depends(_here)]
"""For routes whose place is checked and not used."""
PlaceInstance = Annotated[Instance, Depends(_instance)]
InstanceOfSession = Annotated[Instance, Depends(_session_instance)]
