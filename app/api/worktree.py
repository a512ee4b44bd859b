"""Worktrees of a project."""

import os
from functools import partial
from typing import Annotated

from fastapi import Depends

from app.api.deps import AppServices, Here, Who
from app.api.documented import documented
from app.api.json_route import router
from app.api.roles import READS, WRITES
from app.api.services import Services
from app.project.location import Location
from app.schema.errors import DirectoryForbidden
from app.schema.worktree import CreatedWorktree, WorktreeCreateInput, WorktreeDirectory
from app.users.principal import Principal

routes = router("/experimental/worktree", 400, 403, tags=["worktree"])
routers = (routes,)


def _may_enter(app: Services, who: Principal, path: str) -> bool:
    return app.workspaces.admits(who, os.path.realpath(path))


async def _whole_checkout(app: AppServices, who: Who, here: Here) -> Location:
    """The request's place. Who may work in a part of its checkout alone makes no copies of it. Raises DirectoryForbidden."""
    if here.is_git and not who.may_see_all and not _may_enter(app, who, here.worktree):
        raise DirectoryForbidden(f"{here.worktree} is not a directory that you may work in.", directory=here.worktree)
    return here


@routes.get("", operation_id="worktree.list", dependencies=READS)
async def list_worktrees(app: AppServices, who: Who, here: Here) -> list[str]:
    """The project's checkouts but the main one, made by this server or not."""
    return [path for path in await app.worktrees.list(here) if _may_enter(app, who, path)]


@routes.post("", dependencies=WRITES)
async def create(
    app: AppServices, checkout: Annotated[Location, Depends(_whole_checkout)], body: WorktreeCreateInput
) -> CreatedWorktree:
    """Make a worktree on a branch of its own. `worktree.ready` tells that its files are there; then start commands run."""
    return await app.worktrees.create(checkout, body)


@routes.delete("", responses=documented(409), dependencies=WRITES)
async def remove(app: AppServices, who: Who, here: Here, body: WorktreeDirectory) -> bool:
    """Remove a worktree that this server made, and its branch. Refused while a session works in it."""
    await app.worktrees.remove(here, body.directory, partial(_may_enter, app, who))
    return True


@routes.post("/reset", responses=documented(409), dependencies=WRITES)
async def reset(app: AppServices, who: Who, here: Here, body: WorktreeDirectory) -> bool:
    """Give a worktree of this server's the files of the default branch, and no others. Refused while a session works in it."""
    await app.worktrees.reset(here, body.directory, partial(_may_enter, app, who))
    return True
