"""Version control: a directory's branch, what differs from a commit, patches."""

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from app.api.deps import AppServices, CurrentWorkspace, Here
from app.api.documented import BadRequestError, Responses, answer, documented
from app.api.file import Reach
from app.api.json_route import router
from app.api.roles import READS, WRITES
from app.schema.vcs import VcsApplied, VcsApplyError, VcsFileDiff, VcsFileStatus, VcsInfo, VcsPatch
from app.vcs import comparison
from app.vcs.default_branch import default_branch

routes = router("/vcs", 400, 403, tags=["vcs"])

PATCH_TYPE = "text/x-diff; charset=utf-8"
ContextLines = Annotated[int, Query(ge=0, description="Lines of context; whole files if absent")]


@routes.get("", operation_id="vcs.get", dependencies=READS)
async def info(app: AppServices, workspace: CurrentWorkspace) -> VcsInfo:
    """An empty branch: HEAD is detached, or the directory lies outside git."""
    branch = await app.branches.current(workspace)
    default = await default_branch(workspace.location.git) if workspace.location.git else None
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
