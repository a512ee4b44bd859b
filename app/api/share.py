"""Share links: created and revoked by users of the server, read by anyone with the link (`/s/` needs no password)."""

from typing import Annotated

from fastapi import Path, Request
from fastapi.responses import Response

from app.api.deps import AppServices, SessionIdPath, SessionInstance, SessionPlace
from app.api.documented import documented
from app.api.json_route import router
from app.api.roles import READS, WRITES
from app.api.services import services_of
from app.schema.message import SharedConversation
from app.schema.session import Session
from app.session.share import SharingDisabled, may_share

routes = router("", 404, tags=["session"])
routers = (routes,)

VISITOR_HEADERS = {"Cache-Control": "no-store", "X-Robots-Tag": "noindex, nofollow", "Referrer-Policy": "no-referrer"}
"""A link is a secret: these headers keep it out of caches, search indexes and other sites' logs."""


def public_base(request: Request) -> str:
    """OPENSESSION_PUBLIC_URL, else the address that this request came to."""
    return (services_of(request).settings.public_url or str(request.base_url)).rstrip("/")


@routes.post("/session/{sessionID}/share", responses=documented(400, 403), dependencies=WRITES)
async def share(instance: SessionInstance, session_id: SessionIdPath, request: Request, app: AppServices) -> Session:
    """Sharing twice gives the same link."""
    if not may_share(instance.config, instance.flags):
        raise SharingDisabled
    return await app.shares.share(instance.location, session_id, public_base(request))


@routes.delete("/session/{sessionID}/share", responses=documented(400), dependencies=WRITES)
async def unshare(app: AppServices, here: SessionPlace, session_id: SessionIdPath) -> Session:
    return await app.shares.unshare(here, session_id)


@routes.get("/s/{shareID}/session", operation_id="share.session", response_model=SharedConversation, dependencies=READS)
async def visit(request: Request, app: AppServices, share_id: Annotated[str, Path(alias="shareID")]) -> Response:
    """A shared session as its visitors see it, without a password. With its `ETag` as `If-None-Match`: 304 unless it changed."""
    found = await app.shares.visit(share_id)
    headers = {**VISITOR_HEADERS, "ETag": found.etag}
    if found.etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(found.body, headers=headers, media_type="application/json")
