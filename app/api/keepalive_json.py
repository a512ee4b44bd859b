"""One JSON document that takes long: its headers and a newline go out at once, a newline from time to time, then the document.

White space may stand before a JSON document, so the body stays one; proxies and clients see that the connection lives."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import orjson
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from app.schema.errors import ServiceError

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 15.0


class KeepaliveJson(Response):
    """The work begins at once. A client that goes away, even before the first byte, does not stop it unless it
    `ends_with_client`."""

    def __init__(self, work: Coroutine[Any, Any, bytes], *, ends_with_client: bool = False) -> None:
        self.status_code, self.background, self.media_type = 200, None, "application/json"
        self.init_headers()  # the base's constructor would announce a length
        self._work = asyncio.create_task(_body_or_error(work))
        self._ends_with_client = ends_with_client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Without a task group, as Starlette's streams have it: that costs a small turn a twentieth of its time."""
        gone = asyncio.create_task(disconnected(receive))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await self._keep_alive(gone, send)
            if self._work.done():
                await send({"type": "http.response.body", "body": self._work.result()})
        finally:
            gone.cancel()
            if self._ends_with_client:
                self._work.cancel()

    async def _keep_alive(self, gone: asyncio.Task[None], send: Send) -> None:
        """Until the work is done, or the client has gone."""
        while True:
            await send({"type": "http.response.body", "body": b"\n", "more_body": True})
            if (await asyncio.wait({self._work, gone}, timeout=KEEP_ALIVE_SECONDS, return_when=asyncio.FIRST_COMPLETED))[0]:
                return


async def disconnected(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body_or_error(work: Coroutine[Any, Any, bytes]) -> bytes:
    """The status is sent already: a failure is reported in the body."""
    try:
        return await work
    except ServiceError as error:
        if error.status >= 500:
            log.warning("an answer could not be given: %s: %s", error.name, error.message)
        return orjson.dumps(error.body(), default=str)
    except Exception as error:
        log.exception("an answer could not be given")
        return orjson.dumps({"name": "UnknownError", "data": {"message": f"{type(error).__name__}: see the server's log"}})
