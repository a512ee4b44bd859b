"""The page: static files of this server's own, for trying it out and as an example for authors of frontends."""

import pathlib
from typing import Annotated

from fastapi import Path, Request
from fastapi.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from app.api.deps import AppServices
from app.api.json_route import router
from app.api.roles import READS

routes = router("", include_in_schema=False)

FILES = pathlib.Path(__file__).parents[1] / "page"

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""What a model writes stays text in the page; should that ever fail, nothing of it may run or be sent elsewhere."""

_PRIVATE = {**HEADERS, "Cache-Control": "no-store", "X-Robots-Tag": "noindex, nofollow"}


class PageFiles(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


files = PageFiles(directory=FILES)
routes.mount("/page", files)


@routes.get("/", dependencies=READS)
async def page(request: Request) -> Response:
    return await files.get_response("index.html", request.scope)


@routes.get("/s/{shareID}", dependencies=READS)
async def shared(app: AppServices, share_id: Annotated[str, Path(alias="shareID")]) -> Response:
    if await app.shares.is_shared(share_id):
        return FileResponse(FILES / "share.html", headers=_PRIVATE)
    return FileResponse(FILES / "not-shared.html", 404, _PRIVATE)
