"""The event stream of the second API: of all directories, each event with its own.

Parts are told by what they gain. A client that sends `Last-Event-ID`, which may be the `id` of any event, is sent what it missed.
"""

from typing import Annotated, Any, Literal

from fastapi import Request
from pydantic import Field
from sse_starlette import EventSourceResponse

from app.api.deps import AppServices, Who
from app.api.event import Cursor, CursorInQuery, Token, WantedEvents, open_stream
from app.api.roles import READS
from app.api.v2.errors import TaggedAnswer, described
from app.api.v2.shapes import router
from app.bus.frames import OWN_TYPES
from app.schema.base import Wire
from app.schema.event import AnnouncedEvent
from app.schema.timeline import TIMELINE_EVENTS, described_types

routes = router("", tags=["event"])


class EventPlace(Wire):
    directory: str


def event_types() -> dict[str, str]:
    """What is sent here, with what has happened. A heartbeat is a comment."""
    first = {event.model_fields["type"].default: str(event.__doc__) for event in AnnouncedEvent.__subclasses__()}
    own = {type: first[of_first] for of_first, type in OWN_TYPES.items()}
    return {type: text for type, text in {**first, **own, **TIMELINE_EVENTS}.items() if type != "server.heartbeat"}


class V2Event(Wire):
    """`data`: what the first API has as `properties`. `location` is absent for the server's own."""

    id: str
    type: Annotated[str, Field(description=described_types(event_types()))]
    location: EventPlace | None = None
    data: Any


class TooManyStreamsError(TaggedAnswer):
    status = 429
    tag: Literal["TooManyStreamsError"] = "TooManyStreamsError"


_ANSWERS = {**described(TooManyStreamsError), 200: {"description": "Event stream", "model": V2Event}}


@routes.get("/event", response_class=EventSourceResponse, responses=_ANSWERS, dependencies=READS)
async def subscribe(
    request: Request, app: AppServices, who: Who, last_event_id: Cursor = None, cursor: CursorInQuery = None, token: Token = None
) -> EventSourceResponse:
    cursors = [each for each in (last_event_id, cursor) if each is not None]
    wanted = WantedEvents(deltas=True, ids=bool(cursors), cursor=next(filter(None, cursors), None), second=True)
    return await open_stream(request, app, who, None, wanted)
