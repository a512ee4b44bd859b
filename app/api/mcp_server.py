"""`/mcp-server`: the sessions as tools of other agents, by the Model Context Protocol. What a tool does is asked of the other
routes with the login of the request: there it is judged who may do it."""

import asyncio
from importlib import import_module
from typing import Annotated, Any

from fastapi import Body, Request
from fastapi.responses import Response
from starlette.types import Message, Receive, Scope, Send

from app.api.deps import AppServices, Directory
from app.api.json_route import router
from app.api.roles import READS

routes = router("/mcp-server", include_in_schema=False)
routers = (routes,)


class McpAnswer(Response):
    """`body`: the request's, which was read already; `directory`: the one that it names."""

    def __init__(self, body: bytes, directory: str | None, most_bytes: int) -> None:
        super().__init__()
        self._request_body: bytes | None = body
        self._directory = directory
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from app.mcp_server import over_http

        async def receive_again() -> Message:
            body, self._request_body = self._request_body, None
            return await receive() if body is None else {"type": "http.request", "body": body, "more_body": False}

        scope[over_http.DIRECTORY] = self._directory
        await over_http.answer(scope, receive_again, send, most_bytes=self._most_bytes)


@routes.post("", dependencies=READS)
async def message(request: Request, app: AppServices, where: Directory, message: Annotated[Any, Body()]) -> Response:
    """A message of the protocol is read as strictly as any other body, then by the SDK."""
    await asyncio.to_thread(import_module, "app.mcp_server.over_http")  # the SDK takes most of a second to import
    return McpAnswer(await request.body(), where, app.settings.max_body_bytes)
