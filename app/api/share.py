"""Sessions for others: share links, created and revoked by users of the server, read by anyone with the link (`/s/` needs no
password), and documents: `GET /session/{sessionID}/export` and `POST /session/import`."""

from typing import Annotated, Literal
from urllib.parse import quote

from fastapi import Path, Query, Request
from fastapi.responses import Response, StreamingResponse

from app.api.audit import CREATED
from app.api.deps import AppServices, CurrentInstance, SessionIdPath, SessionInstance, StoredPlace, Who, json_bytes, public_base
from app.api.errors import documented
from app.api.json_route import router
from app.api.roles import READS, WRITES
from app.schema.message import SharedConversation
from app.schema.session import Session
from app.sessions.share import SharingDisabled, may_share
from app.transfer.document import SessionDocument
from app.transfer.exports import DocumentFormat, export_session
from app.transfer.importing import Destination, ImportedSessions

routes = router("", 404, tags=["session"])
documents = router("/session", 400, 507, tags=["session"])
routers = (routes, documents)

VISITOR_HEADERS = {"Cache-Control": "no-store", "X-Robots-Tag": "noindex, nofollow", "Referrer-Policy": "no-referrer"}
"""A link is a secret: these headers keep it out of caches, search indexes and other sites' logs."""


@routes.post("/session/{sessionID}/share", responses=documented(400, 403), dependencies=WRITES)
async def share(instance: SessionInstance, session_id: SessionIdPath, request: Request, app: AppServices) -> Session:
    """Sharing twice gives the same link."""
    if not may_share(instance.config, instance.flags):
        raise SharingDisabled
    return await app.shares.share(instance.location, session_id, public_base(request))


@routes.delete("/session/{sessionID}/share", responses=documented(400), dependencies=WRITES)
async def unshare(app: AppServices, here: StoredPlace, session_id: SessionIdPath) -> Session:
    return await app.shares.unshare(here, session_id)


@routes.get("/s/{shareID}/session", operation_id="share.session", response_model=SharedConversation, dependencies=READS)
async def visit(app: AppServices, share_id: Annotated[str, Path(alias="shareID")]) -> Response:
    """A shared session as its visitors see it, without a password."""
    return json_bytes(await app.shares.visit(share_id), headers=VISITOR_HEADERS)


# Documents.


_CONTENT = {"application/json": {"schema": {"$ref": "#/components/schemas/SessionDocument"}}}
_BODY = {"requestBody": {"required": True, "content": _CONTENT}}
_IMPORTED = documented(403, 409, 413)
_MEDIA_TYPES: dict[DocumentFormat, str] = {"json": "application/json", "markdown": "text/markdown; charset=utf-8"}


@documents.get("/{sessionID}/export", response_model=SessionDocument, responses=documented(404), dependencies=READS)
async def export(
    app: AppServices,
    session_id: SessionIdPath,
    children: Annotated[bool, Query(description="With all its descendants")] = False,
    form: Annotated[DocumentFormat, Query(alias="format", description="markdown: for people, not to be imported")] = "json",
) -> Response:
    """The session as one document, as it is at this moment, in the shape of `opencode export`."""
    exported = await export_session(app.store, app.settings.data_dir, session_id, form, children=children)
    name = f"{quote(session_id)}.{'json' if form == 'json' else 'md'}"
    headers = {"Content-Length": str(exported.size), "Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(exported.pieces(), headers=headers, media_type=_MEDIA_TYPES[form])


@documents.post("/import", operation_id="session.import", responses=_IMPORTED, openapi_extra=_BODY, dependencies=WRITES)
async def import_document(
    request: Request,
    app: AppServices,
    who: Who,
    instance: CurrentInstance,
    ids: Annotated[Literal["keep", "new"], Query(description="new: other ids for all sessions, messages and parts")] = "keep",
) -> ImportedSessions:
    """Stores a document, of the export here or of `opencode export`, in the request's directory: all of it or nothing."""
    destination = Destination(instance.location, who.name)
    body, most = await request.body(), app.settings.max_part_bytes
    imported = await app.importer.take(body, destination, instance.snapshots, most, new_ids=ids == "new")
    request.scope[CREATED] = imported.info.id
    return imported
