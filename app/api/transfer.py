"""Sessions as documents: `GET /session/{sessionID}/export` and `POST /session/import`."""

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import Query, Request
from fastapi.responses import Response, StreamingResponse

from app.api.audit import CREATED
from app.api.deps import AppServices, CurrentInstance, SessionIdPath, Who
from app.api.documented import documented
from app.api.json_route import router
from app.api.roles import READS, WRITES
from app.transfer.document import SessionDocument
from app.transfer.exports import DocumentFormat
from app.transfer.importing import Destination, ImportedSessions

routes = router("/session", 400, 507, tags=["session"])
routers = (routes,)

_CONTENT = {"application/json": {"schema": {"$ref": "#/components/schemas/SessionDocument"}}}
_BODY = {"requestBody": {"required": True, "content": _CONTENT}}
_IMPORTED = documented(403, 409, 413)
_MEDIA_TYPES: dict[DocumentFormat, str] = {"json": "application/json", "markdown": "text/markdown; charset=utf-8"}


@routes.get("/{sessionID}/export", response_model=SessionDocument, responses=documented(404), dependencies=READS)
async def export(
    app: AppServices,
    session_id: SessionIdPath,
    children: Annotated[bool, Query(description="With all its descendants")] = False,
    form: Annotated[DocumentFormat, Query(alias="format", description="markdown: for people, not to be imported")] = "json",
) -> Response:
    """The session as one document, as it is at this moment, in the shape of `opencode export`."""
    exported = await app.exports.export(session_id, form, children=children)
    name = f"{quote(session_id)}.{'json' if form == 'json' else 'md'}"
    headers = {"Content-Length": str(exported.size), "Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(exported.pieces(), headers=headers, media_type=_MEDIA_TYPES[form])


@routes.post("/import", operation_id="session.import", responses=_IMPORTED, openapi_extra=_BODY, dependencies=WRITES)
async def import_document(
    request: Request,
    app: AppServices,
    who: Who,
    instance: CurrentInstance,
    ids: Annotated[Literal["keep", "new"], Query(description="new: other ids for all sessions, messages and parts")] = "keep",
) -> ImportedSessions:
    """Stores a document, of the export here or of `opencode export`, in the request's directory: all of it or nothing."""
    destination = Destination(instance.location, who.name)
    imported = await app.imports.take(await request.body(), destination, instance.snapshots, new_ids=ids == "new")
    request.scope[CREATED] = imported.info.id
    return imported
