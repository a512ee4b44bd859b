"""One JSON document that takes long: its headers and a newline go out at once, a newline from time to time, then the document.

White space may stand before a JSON document, so the body stays one; proxies and clients see that the connection lives."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import orjson

from app.schema.errors import ServiceError

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 15.0


def keepalive_json(work: Coroutine[Any, Any, bytes]) -> AsyncIterator[bytes]:
    """The work begins at once: a client that goes away, even before the first byte, does not stop it."""
    return _document(asyncio.create_task(_body_or_error(work)))


async def abandonable_json(work: Callable[[], Coroutine[Any, Any, bytes]]) -> AsyncIterator[bytes]:
    """The same for work that is cancelled when the client goes away."""
    task = asyncio.create_task(_body_or_error(work()))
    try:
        async for piece in _document(task):
            yield piece
    finally:
        task.cancel()


async def _document(task: asyncio.Task[bytes]) -> AsyncIterator[bytes]:
    yield b"\n"
    while True:
        done, _ = await asyncio.wait({task}, timeout=KEEP_ALIVE_SECONDS)
        if done:
            yield task.result()
            return
        yield b"\n"


async def _body_or_error(work: Coroutine[Any, Any, bytes]) -> bytes:
    """The status is sent already: a failure is reported in the body."""
    try:
        return await work
    except ServiceError as error:
        return orjson.dumps(error.body(), default=str)
    except Exception as error:
        log.exception("an answer could not be given")
        return orjson.dumps({"name": "UnknownError", "data": {"message": f"{type(error).__name__}: see the server's log"}})
