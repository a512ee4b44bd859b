"""Answers that take long: one JSON document, whose headers and a newline go out at once, a newline from time to time, then the
document. White space may stand before a JSON document, so the body stays one; proxies and clients see that the connection lives.

And what OpenCode's own programs are given beside what every client gets: its terminal client, and `opencode run`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import orjson
from fastapi.responses import StreamingResponse
from starlette.types import Receive

from app.schema.errors import ServiceError

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 15.0

LongWork = Coroutine[Any, Any, bytes]


def keeping_alive(work: LongWork) -> StreamingResponse:
    """The work begins at once. A client that goes away, even before the first byte, does not stop it."""
    return StreamingResponse(_behind_newlines(asyncio.create_task(_body_or_error(work))), media_type="application/json")


def waiting_with_client(work: Callable[[], LongWork]) -> StreamingResponse:
    """The work begins with the answer, and ends when the client goes away."""
    return StreamingResponse(_while_read(work), media_type="application/json")


async def _while_read(work: Callable[[], LongWork]) -> AsyncIterator[bytes]:
    task = asyncio.create_task(_body_or_error(work()))
    try:
        async for piece in _behind_newlines(task):
            yield piece
    finally:
        task.cancel()


async def _behind_newlines(work: asyncio.Task[bytes]) -> AsyncIterator[bytes]:
    done: set[asyncio.Task[bytes]] = set()
    while not done:
        yield b"\n"
        done, _ = await asyncio.wait({work}, timeout=KEEP_ALIVE_SECONDS)
    yield work.result()


async def disconnected(receive: Receive) -> None:
    """Returns when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body_or_error(work: LongWork) -> bytes:
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


EVENTS_AHEAD_SECONDS = 0.2


def is_opencode(user_agent: str) -> bool:
    """They name themselves: `opencode/1.1.34`."""
    return user_agent.startswith("opencode/")


async def behind_its_events(user_agent: str, answer: Coroutine[Any, Any, bytes]) -> bytes:
    """An answer, for these programs a while after its events. `opencode run --attach` of 1.18 prints what the event stream brings
    and ends with the answer: what it has not read by then is never printed. OpenCode answers 0.1 to 0.4 s after the last text."""
    body = await answer
    if is_opencode(user_agent):
        await asyncio.sleep(EVENTS_AHEAD_SECONDS)
    return body
