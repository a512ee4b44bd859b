"""The event stream of the second API: of all directories, each event with its own.

Parts are told by what they gain. A client that sends `Last-Event-ID`, which may be the `id` of any event, is sent what it missed.
"""

from typing import Any, Literal

from fastapi.responses import StreamingResponse
from pydantic import Field

from app.api.event import Cursor, CursorInQuery, Token, WantedEvents, open_stream
from app.api.json_route import ServerRequest
from app.api.v2.answers import router
from app.api.v2.errors import TaggedAnswer, described
from app.schema.base import Wire

routes = router(tags=["event"])


class EventPlace(Wire):
    directory: str


class V2Event(Wire):
    """`data`: what the first API has as `properties`. `location` is absent for the server's own."""

    id: str
    type: str
    location: EventPlace | None = None
    data: Any


class TooManyStreamsError(TaggedAnswer):
    status = 429
    tag: Literal["TooManyStreamsError"] = Field("TooManyStreamsError", alias="_tag")


@routes.get(
    "/event",
    operation_id="v2.event.subscribe",
    response_class=StreamingResponse,
    responses={**described(TooManyStreamsError), 200: {"description": "Event stream", "model": V2Event}},
)
async def subscribe(
    request: ServerRequest, last_event_id: Cursor = None, cursor: CursorInQuery = None, token: Token = None
) -> StreamingResponse:
    cursors = [each for each in (last_event_id, cursor) if each is not None]
    wanted = WantedEvents(deltas=True, ids=bool(cursors), cursor=next(filter(None, cursors), None), second=True)
    return await open_stream(request, None, wanted)
