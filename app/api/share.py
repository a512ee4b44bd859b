"""Share links: created and revoked by users of the server, read by anyone with the link (`/s/` needs no password)."""

from typing import Annotated

from fastapi import Path
from fastapi.responses import Response, StreamingResponse

from app.api.deps import Directory, SessionIdPath, documented, session_instance, session_location, wire
from app.api.json_route import ServerRequest, router
from app.schema.session import Session
from app.schema.share import SharedConversation
from app.session.share import SharingDisabled, may_share

routes = router(tags=["session"])

VISITOR_HEADERS = {"Cache-Control": "no-store", "X-Robots-Tag": "noindex, nofollow", "Referrer-Policy": "no-referrer"}
"""A link is a secret: these headers keep it out of caches, search indexes and other sites' logs."""


def public_base(request: ServerRequest) -> str:
    """OPENSESSION_PUBLIC_URL, else the address that this request came to."""
    return (request.services.settings.public_url or str(request.base_url)).rstrip("/")


@routes.post(
    "/session/{sessionID}/share", operation_id="session.share", response_model=Session, responses=documented(400, 403, 404)
)
async def share(where: Directory, session_id: SessionIdPath, request: ServerRequest) -> Response:
    """Sharing twice gives the same link."""
    instance = await session_instance(request, session_id, where)
    if not may_share(instance.config, instance.flags):
        raise SharingDisabled
    return wire(await request.services.sessions.shares.share(instance.location, session_id, public_base(request)))


@routes.delete(
    "/session/{sessionID}/share", operation_id="session.unshare", response_model=Session, responses=documented(400, 404)
)
async def unshare(request: ServerRequest, where: Directory, session_id: SessionIdPath) -> Response:
    return wire(await request.services.sessions.shares.unshare(await session_location(request, session_id, where), session_id))


@routes.get("/s/{shareID}/session", operation_id="share.session", response_model=SharedConversation, responses=documented(404))
async def visit(request: ServerRequest, share_id: Annotated[str, Path(alias="shareID")]) -> Response:
    """A shared session as its visitors see it, without a password. With its `ETag` as `If-None-Match`: 304 unless it changed."""
    found = await request.services.sessions.shares.visit(share_id)
    headers = {**VISITOR_HEADERS, "ETag": found.etag}
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    headers["Content-Length"] = str(len(found.body))
    return StreamingResponse(request.services.sessions.shares.chunks(found), headers=headers, media_type="application/json")
