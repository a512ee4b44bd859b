"""Worktrees of a project."""

import os
from functools import partial

from fastapi.responses import Response

from app.api.access import may_enter
from app.api.deps import TRUE, Directory, documented, json_bytes, location_of, wire
from app.api.json_route import ServerRequest, router
from app.project.location import Location
from app.schema.errors import DirectoryForbidden
from app.schema.worktree import CreatedWorktree, WorktreeCreateInput, WorktreeDirectory

routes = router(prefix="/experimental/worktree", tags=["worktree"], responses=documented(400, 403))


def _may_enter(request: ServerRequest, path: str) -> bool:
    return may_enter(request.services, request.principal, os.path.realpath(path))


async def _whole_checkout(request: ServerRequest, where: str | None) -> Location:
    """The request's place. Who may work in a part of its checkout alone makes no copies of it. Raises DirectoryForbidden."""
    location = await location_of(request, where)
    if location.is_git and not request.principal.may_see_all and not _may_enter(request, location.worktree):
        raise DirectoryForbidden(f"{location.worktree} is not a directory that you may work in.", directory=location.worktree)
    return location


@routes.get("", operation_id="worktree.list", response_model=list[str])
async def list_worktrees(request: ServerRequest, where: Directory) -> list[str]:
    """The project's checkouts but the main one, made by this server or not."""
    found = await request.services.vcs.worktrees.list(await location_of(request, where))
    return [path for path in found if _may_enter(request, path)]


@routes.post("", operation_id="worktree.create", response_model=CreatedWorktree)
async def create(request: ServerRequest, where: Directory, body: WorktreeCreateInput) -> Response:
    """Make a worktree on a branch of its own. `worktree.ready` tells that its files are there; then start commands run."""
    return wire(await request.services.vcs.worktrees.create(await _whole_checkout(request, where), body))


@routes.delete("", operation_id="worktree.remove", response_model=bool, responses=documented(409))
async def remove(request: ServerRequest, where: Directory, body: WorktreeDirectory) -> Response:
    """Remove a worktree that this server made, and its branch. Refused while a session works in it."""
    await request.services.vcs.worktrees.remove(await location_of(request, where), body.directory, partial(_may_enter, request))
    return json_bytes(TRUE)


@routes.post("/reset", operation_id="worktree.reset", response_model=bool, responses=documented(409))
async def reset(request: ServerRequest, where: Directory, body: WorktreeDirectory) -> Response:
    """Give a worktree of this server's the files of the default branch, and no others. Refused while a session works in it."""
    await request.services.vcs.worktrees.reset(await location_of(request, where), body.directory, partial(_may_enter, request))
    return json_bytes(TRUE)
