"""Sessions as documents: `GET /session/{sessionID}/export` and `POST /session/import`."""

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import Query
from fastapi.responses import Response, StreamingResponse

from app.api.audit import CREATED
from app.api.deps import Directory, SessionIdPath, documented, instance_of, wire
from app.api.json_route import ServerRequest, router
from app.transfer.document import SessionDocument
from app.transfer.exports import DocumentFormat
from app.transfer.importer import Destination
from app.transfer.imports import DocumentImport, ImportedSessions

routes = router(prefix="/session", tags=["session"])

_DOCUMENT = {"required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/SessionDocument"}}}}
_MEDIA_TYPES: dict[DocumentFormat, str] = {"json": "application/json", "markdown": "text/markdown; charset=utf-8"}


@routes.get(
    "/{sessionID}/export", operation_id="session.export", response_model=SessionDocument, responses=documented(400, 404, 507)
)
async def export(
    request: ServerRequest,
    session_id: SessionIdPath,
    children: Annotated[bool, Query(description="With all its descendants")] = False,
    form: Annotated[DocumentFormat, Query(alias="format", description="markdown: for people, not to be imported")] = "json",
) -> Response:
    """The session as one document, as it is at this moment, in the shape of `opencode export`."""
    exported = await request.services.transfer().exports.export(session_id, form, children=children)
    name = f"{quote(session_id)}.{'json' if form == 'json' else 'md'}"
    headers = {"Content-Length": str(exported.size), "Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(exported.pieces(), headers=headers, media_type=_MEDIA_TYPES[form])


@routes.post(
    "/import",
    operation_id="session.import",
    response_model=ImportedSessions,
    responses=documented(400, 403, 409, 413, 507),
    openapi_extra={"requestBody": _DOCUMENT},
)
async def import_document(
    request: ServerRequest,
    where: Directory,
    ids: Annotated[Literal["keep", "new"], Query(description="new: other ids for all sessions, messages and parts")] = "keep",
) -> Response:
    """Stores a document, of the export here or of `opencode export`, in the request's directory: all of it or nothing."""
    instance = await instance_of(request, where)
    destination = Destination(instance.location, request.principal.name)
    wanted = DocumentImport(await request.body(), destination, instance.snapshots, with_new_ids=ids == "new")
    imported = await request.services.transfer().imports.take(wanted)
    request.scope[CREATED] = imported.info.id
    return wire(imported)
