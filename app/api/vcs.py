"""Version control: what differs from HEAD, patches, and the worktrees of a project."""

import os
from functools import partial
from typing import Annotated

from fastapi import Depends, Query
from fastapi.responses import Response

from app.api.deps import AppServices, CurrentWorkspace, Here, Who
from app.api.documented import BadRequestError, Responses, answer, documented
from app.api.file import Reach
from app.api.json_route import router
from app.api.roles import READS, WRITES
from app.project.location import Location
from app.schema.errors import DirectoryForbidden
from app.schema.vcs import VcsApplied, VcsApplyError, VcsFileDiff, VcsFileStatus, VcsInfo, VcsPatch
from app.schema.worktree import CreatedWorktree, WorktreeCreateInput, WorktreeDirectory
from app.server import Server
from app.users.principal import Principal
from app.vcs import comparison

routes = router("/vcs", 400, 403, tags=["vcs"])

PATCH_TYPE = "text/x-diff; charset=utf-8"
ContextLines = Annotated[int, Query(ge=0, description="Lines of context; whole files if absent")]


@routes.get("", operation_id="vcs.get", dependencies=READS)
async def info(app: AppServices, workspace: CurrentWorkspace) -> VcsInfo:
    """An empty branch: HEAD is detached, or the directory lies outside git."""
    branch = await app.branches.current(workspace)
    default = await comparison.default_branch(workspace.location.git) if workspace.location.git else None
    return VcsInfo(branch=branch, default_branch=default.name if default else None)


@routes.get("/status", dependencies=READS)
async def status(here: Here) -> list[VcsFileStatus]:
    """What differs from HEAD in the directory, files that git does not know yet included."""
    return await comparison.changed_files(here)


@routes.get("/diff", dependencies=READS)
async def diff(here: Here, mode: comparison.Mode, context: ContextLines = comparison.WHOLE_FILE) -> list[VcsFileDiff]:
    """The same with patches: since HEAD (`git`), or since the branch left the default branch (`branch`)."""
    return await comparison.diffs(here, mode, context)


_PATCH: Responses = {200: {"content": {PATCH_TYPE: {"schema": {"type": "string"}}}}, **documented(413)}
_APPLIED = {400: answer("Bad request", VcsApplyError, BadRequestError), **documented(409)}


@routes.get("/diff/raw", operation_id="vcs.diff.raw", response_class=Response, responses=_PATCH, dependencies=READS)
async def raw_diff(here: Here) -> Response:
    """What differs from HEAD as one patch, which `POST /vcs/apply` takes."""
    return Response(await comparison.raw_patch(here), media_type=PATCH_TYPE)


@routes.post("/apply", responses=_APPLIED, dependencies=WRITES)
async def apply(app: AppServices, reach: Reach, body: VcsPatch) -> VcsApplied:
    """Apply a patch to the directory's files: all of it, or nothing. Refused while a session works in the checkout."""
    await app.patching.apply(reach, body.patch)
    return VcsApplied()


worktrees = router("/experimental/worktree", 400, 403, tags=["worktree"])
routers = (routes, worktrees)


def _may_enter(app: Server, who: Principal, path: str) -> bool:
    return app.workspaces.admits(who, os.path.realpath(path))


async def _whole_checkout(app: AppServices, who: Who, here: Here) -> Location:
    """The request's place. Who may work in a part of its checkout alone makes no copies of it. Raises DirectoryForbidden."""
    if here.is_git and not who.may_see_all and not _may_enter(app, who, here.worktree):
        raise DirectoryForbidden(f"{here.worktree} is not a directory that you may work in.", directory=here.worktree)
    return here


@worktrees.get("", operation_id="worktree.list", dependencies=READS)
async def list_worktrees(app: AppServices, who: Who, here: Here) -> list[str]:
    """The project's checkouts but the main one, made by this server or not."""
    return [path for path in await app.worktrees.list(here) if _may_enter(app, who, path)]


@worktrees.post("", dependencies=WRITES)
async def create(
    app: AppServices, checkout: Annotated[Location, Depends(_whole_checkout)], body: WorktreeCreateInput
) -> CreatedWorktree:
    """Make a worktree on a branch of its own. `worktree.ready` tells that its files are there; then start commands run."""
    return await app.worktrees.create(checkout, body)


@worktrees.delete("", responses=documented(409), dependencies=WRITES)
async def remove(app: AppServices, who: Who, here: Here, body: WorktreeDirectory) -> bool:
    """Remove a worktree that this server made, and its branch. Refused while a session works in it."""
    await app.worktrees.remove(here, body.directory, partial(_may_enter, app, who))
    return True


@worktrees.post("/reset", responses=documented(409), dependencies=WRITES)
async def reset(app: AppServices, who: Who, here: Here, body: WorktreeDirectory) -> bool:
    """Give a worktree of this server's the files of the default branch, and no others. Refused while a session works in it."""
    await app.worktrees.reset(here, body.directory, partial(_may_enter, app, who))
    return True
