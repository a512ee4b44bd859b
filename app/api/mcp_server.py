"""`/mcp-server`: the sessions as tools of other agents, by the Model Context Protocol. What a tool does is asked of the other
routes with the login of the request: there it is judged who may do it."""

from typing import Annotated, Any

from fastapi import Body, Request
from fastapi.responses import Response
from starlette.types import Message, Receive, Scope, Send

from app.api.deps import AppServices, Directory
from app.api.json_route import router
from app.api.roles import READS
from app.mcp_server import over_http

routes = router("/mcp-server", include_in_schema=False)
routers = (routes,)


class McpAnswer(Response):
    """`body`: the request's, which was read already."""

    def __init__(self, body: bytes, most_bytes: int) -> None:
        super().__init__()
        self._request_body: bytes | None = body
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def receive_again() -> Message:
            body, self._request_body = self._request_body, None
            return await receive() if body is None else {"type": "http.request", "body": body, "more_body": False}

        await over_http.answer(scope, receive_again, send, most_bytes=self._most_bytes)


@routes.post("", dependencies=READS)
async def message(request: Request, app: AppServices, where: Directory, message: Annotated[Any, Body()]) -> Response:
    """A message of the protocol is read as strictly as any other body, then by the SDK."""
    request.scope[over_http.DIRECTORY] = where
    return McpAnswer(await request.body(), app.settings.max_body_bytes)
