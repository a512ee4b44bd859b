"""What the second API's routes share: the place that a request names (`location[directory]`, else the header that OpenCode's
clients send, else the server's own), the two forms of an answer, and the cursors of pages."""

import base64
from collections.abc import Sequence
from typing import Annotated, Any, Generic, Literal, TypeVar

import orjson
from fastapi import APIRouter, Depends, Query, Request

from app.api import json_route
from app.api.deps import AppServices, SessionIdPath, Who, instance_of, instance_of_session, named_directory, workspace_of
from app.api.errors import described
from app.project.location import Location
from app.schema.base import Wire
from app.schema.errors import BadRequest, InvalidCursor
from app.workspace.instance import Instance
from app.workspace.workspace import Workspace


class PlaceProject(Wire):
    """`directory`: the root of the project's checkout, `/` outside git."""

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
    """Raises BadRequest for a workspace: OpenCode makes workspaces outside the directories that a server works in."""
    if location is not None:
        raise BadRequest("A location is named by location[directory]=…", ["location"], location)
    if workspace or request.headers.get("x-opencode-workspace"):
        raise BadRequest("There are no workspaces here; leave it out", ["location", "workspace"], workspace)
    return await named_directory(request, directory)


Place = Annotated[str | None, Depends(named_place)]


async def _workspace(app: AppServices, who: Who, place: Place) -> Workspace:
    """Raises DirectoryForbidden, BadRequest."""
    return await workspace_of(app, who, place)


PlaceWorkspace = Annotated[Workspace, Depends(_workspace)]


async def _location(workspace: PlaceWorkspace) -> Location:
    return workspace.location


async def _instance(app: AppServices, who: Who, place: Place) -> Instance:
    return await instance_of(app, who, place)


async def _session_instance(app: AppServices, who: Who, session_id: SessionIdPath) -> Instance:
    """The instance of the directory where the session was created, whatever the request names."""
    return await instance_of_session(app, who, await app.store.session(session_id), None)


PlaceLocation = Annotated[Location, Depends(_location)]
IN_PLACE = [Depends(_location)]
"""For routes that check their place and do not use it."""
PlaceInstance = Annotated[Instance, Depends(_instance)]
InstanceOfSession = Annotated[Instance, Depends(_session_instance)]


T = TypeVar("T")


class Data(Wire, Generic[T]):
    """An answer that belongs to no directory."""

    data: T


class Located(Wire, Generic[T]):
    """An answer that belongs to the directory of the request."""

    location: LocationInfo
    data: T


def located(location: Location, value: T) -> Located[T]:
    return Located(location=LocationInfo.of(location), data=value)


def router(prefix: str = "", *errors: str, **options: Any) -> APIRouter:
    """`errors`: the tags of what each of the router's routes may answer with, beside a 400 and a 401."""
    return json_route.router(
        f"/api{prefix}",
        responses=described(*errors),
        generate_unique_id_function=lambda route: f"v2.{json_route.operation_id(route)}",
        **options,
    )


C = TypeVar("C", bound=Wire)
Order = Literal["asc", "desc"]


class PageEnds(Wire):
    """`previous` and `next` are cursors of the pages before and after this one; none if this page is empty."""

    previous: str | None = None
    next: str | None = None


class PageCursor(Wire):
    """A page beside an `anchor`: before or after it in time, in an order."""

    newer: bool
    order: Order

    def ends(self, ids: Sequence[str]) -> PageEnds:
        """The cursors of a page with the items of these ids."""
        if not ids:
            return PageEnds()
        previous = self.model_copy(update={"anchor": ids[0], "newer": self.order == "desc"})
        following = self.model_copy(update={"anchor": ids[-1], "newer": self.order == "asc"})
        return PageEnds(previous=write_cursor(previous), next=write_cursor(following))


def write_cursor(cursor: Wire) -> str:
    return base64.urlsafe_b64encode(cursor.wire_json()).decode().rstrip("=")


def read_cursor(kind: type[C], cursor: str) -> C:
    """Raises InvalidCursor."""
    try:
        content: Any = orjson.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        return kind.model_validate(content)
    except ValueError:
        raise InvalidCursor("Invalid cursor") from None
