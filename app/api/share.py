"""Share links: made and taken back by whoever may use the server, read by whoever has the link (`/s/` needs no password)."""

from typing import Annotated

from fastapi import Path
from fastapi.responses import Response, StreamingResponse

from app.api.deps import Directory, SessionPath, documented, session_instance, session_place, wire
from app.api.json_route import ServerRequest, router
from app.schema.session import Session
from app.schema.share import SharedConversation
from app.session.share import SharingDisabled, may_share

routes = router(tags=["session"])

VISITOR_HEADERS = {"Cache-Control": "no-store", "X-Robots-Tag": "noindex, nofollow", "Referrer-Policy": "no-referrer"}
"""A link is a secret: it goes into no cache, no index and no other site's log."""


def public_base(request: ServerRequest) -> str:
    """OPENSESSION_PUBLIC_URL, else the address that this request came to."""
    return (request.services.public_url or str(request.base_url)).rstrip("/")


@routes.post(
    "/session/{sessionID}/share", operation_id="session.share", response_model=Session, responses=documented(400, 403, 404)
)
async def share(where: Directory, session_id: SessionPath, request: ServerRequest) -> Response:
    """Sharing twice gives the same link."""
    instance = await session_instance(request, session_id, where)
    if not may_share(instance.config, instance.flags):
        raise SharingDisabled
    return wire(await request.services.shares.share(instance.place, session_id, public_base(request)))


@routes.delete(
    "/session/{sessionID}/share", operation_id="session.unshare", response_model=Session, responses=documented(400, 404)
)
async def unshare(request: ServerRequest, where: Directory, session_id: SessionPath) -> Response:
    return wire(await request.services.shares.unshare(await session_place(request, session_id, where), session_id))


@routes.get("/s/{shareID}/session", operation_id="share.session", response_model=SharedConversation, responses=documented(404))
async def visit(request: ServerRequest, share_id: Annotated[str, Path(alias="shareID")]) -> Response:
    """A shared session as its visitors see it, without a password. With its `ETag` as `If-None-Match`: 304 unless it changed."""
    found = await request.services.shares.visit(share_id)
    headers = {**VISITOR_HEADERS, "ETag": found.etag}
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    headers["Content-Length"] = str(len(found.body))
    return StreamingResponse(request.services.shares.pieces(found), headers=headers, media_type="application/json")
