"""Version control: a directory's branch, what differs from a commit, patches."""

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from app.api.deps import BadRequestError, Directory, documented, json_bytes, location_of, wire, workspace_of
from app.api.file import allowed_paths
from app.api.json_route import ServerRequest, router
from app.schema.vcs import VcsApplied, VcsApplyError, VcsFileDiff, VcsFileStatus, VcsInfo, VcsPatch
from app.session.rows import json_array
from app.vcs import comparison
from app.vcs.default_branch import default_branch

routes = router(tags=["vcs"], responses=documented(400, 403))

PATCH_TYPE = "text/x-diff; charset=utf-8"
ContextLines = Annotated[int, Query(ge=0, description="Lines of context; whole files if absent")]


@routes.get("/vcs", operation_id="vcs.get", response_model=VcsInfo)
async def info(request: ServerRequest, where: Directory) -> Response:
    """An empty branch: HEAD is detached, or the directory lies outside git."""
    workspace = await workspace_of(request, where)
    branch = await request.services.directories.branches.current(workspace)
    default = await default_branch(workspace.location.git) if workspace.location.git else None
    return wire(VcsInfo(branch=branch, default_branch=default.name if default else None))


@routes.get("/vcs/status", operation_id="vcs.status", response_model=list[VcsFileStatus])
async def status(request: ServerRequest, where: Directory) -> Response:
    """What differs from HEAD in the directory, files that git does not know yet included."""
    files = await comparison.changed_files(await location_of(request, where))
    return json_bytes(json_array([file.wire_json() for file in files]))


@routes.get("/vcs/diff", operation_id="vcs.diff", response_model=list[VcsFileDiff])
async def diff(
    request: ServerRequest, where: Directory, mode: comparison.Mode, context: ContextLines = comparison.WHOLE_FILE
) -> Response:
    """The same with patches: since HEAD (`git`), or since the branch left the default branch (`branch`)."""
    files = await comparison.diffs(await location_of(request, where), mode, context)
    return json_bytes(json_array([file.wire_json() for file in files]))


@routes.get(
    "/vcs/diff/raw",
    operation_id="vcs.diff.raw",
    response_class=Response,
    responses={200: {"content": {PATCH_TYPE: {"schema": {"type": "string"}}}}, **documented(413)},
)
async def raw_diff(request: ServerRequest, where: Directory) -> Response:
    """What differs from HEAD as one patch, which `POST /vcs/apply` takes."""
    return Response(await comparison.raw_patch(await location_of(request, where)), media_type=PATCH_TYPE)


@routes.post(
    "/vcs/apply",
    operation_id="vcs.apply",
    response_model=VcsApplied,
    responses={400: {"description": "Bad request", "model": VcsApplyError | BadRequestError}, **documented(409)},
)
async def apply(request: ServerRequest, where: Directory, body: VcsPatch) -> Response:
    """Apply a patch to the directory's files: all of it, or nothing. Refused while a session works in the checkout."""
    await request.services.vcs.patching.apply(await allowed_paths(request, where), body.patch)
    return wire(VcsApplied())
