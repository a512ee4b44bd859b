"""The page: static files of this server's own, for trying it out and as an example for authors of frontends."""

import mimetypes
import pathlib
from functools import cache
from typing import Annotated

from fastapi import Path, Request
from fastapi.responses import FileResponse, Response
from starlette.exceptions import HTTPException

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

_PRIVATE = {"Cache-Control": "no-store", "X-Robots-Tag": "noindex, nofollow"}


@routes.get("/", dependencies=READS)
async def page(request: Request) -> Response:
    return _file(request, "index.html")


@routes.get("/page/{name:path}", dependencies=READS)
async def asset(request: Request, name: str) -> Response:
    if name not in _names():
        raise HTTPException(404)
    return _file(request, name)


@routes.get("/s/{shareID}", dependencies=READS)
async def shared(request: Request, app: AppServices, share_id: Annotated[str, Path(alias="shareID")]) -> Response:
    if await app.shares.is_shared(share_id):
        return _file(request, "share.html", 200, _PRIVATE)
    return _file(request, "not-shared.html", 404, _PRIVATE)


@cache
def _names() -> frozenset[str]:
    """Only what is there when the server starts is served: no request reads a path of its own."""
    return frozenset(file.relative_to(FILES).as_posix() for file in FILES.rglob("*") if file.is_file())


def _file(request: Request, name: str, status: int = 200, extra: dict[str, str] | None = None) -> Response:
    path, headers = FILES / name, {**HEADERS, **(extra or {})}
    response = FileResponse(path, status, headers, mimetypes.guess_type(name)[0], stat_result=path.stat())
    if status == 200 and request.headers.get("if-none-match") == response.headers["etag"]:
        return Response(status_code=304, headers={**headers, "ETag": response.headers["etag"]})
    return response
