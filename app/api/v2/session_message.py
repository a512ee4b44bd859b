"""What is in a session: messages, the model's context, and the session's events."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import Response
from sse_starlette import EventSourceResponse

from app.api.deps import AppServices, SessionIdPath, Who
from app.api.event import listen, stream
from app.api.roles import READS
from app.api.v2.errors import InvalidCursorError, MessageNotFoundError, SessionNotFoundError, described
from app.api.v2.session import DEFAULT_LIMIT
from app.api.v2.shapes import Data, Order, PageCursor, PageEnds, data, invalid_cursor, read_cursor, router
from app.schema.base import MessageID, Wire
from app.schema.timeline import SessionMessage, TimelineEvent
from app.storage.repositories.session_rows import PageBeside, UnknownAnchor
from app.timeline.events import LARGEST

routes = router("/session/{sessionID}", SessionNotFoundError, tags=["session"])

MOST_MESSAGES = 200
MOST_EVENTS = 100

After = Annotated[int, Query(ge=0, le=LARGEST, description="Events behind this `durable.seq`; all if absent")]


class MessageCursor(PageCursor):
    anchor: MessageID


class SessionMessagesResponse(Wire):
    data: list[SessionMessage]
    cursor: PageEnds


class SessionEventPage(Wire):
    data: list[TimelineEvent]
    has_more: bool


@routes.get("/message", responses=described(InvalidCursorError), dependencies=READS)
async def messages(
    app: AppServices,
    session_id: SessionIdPath,
    limit: Annotated[int, Query(ge=1, le=MOST_MESSAGES)] = DEFAULT_LIMIT,
    order: Annotated[Order | None, Query(description="desc, the newest first, if absent")] = None,
    cursor: Annotated[str | None, Query(description="From an answer, without `order`")] = None,
) -> SessionMessagesResponse:
    if cursor is not None and order is not None:
        raise invalid_cursor("Cursor cannot be combined with order")
    at = MessageCursor(anchor="msg", newer=False, order=order or "desc")
    if cursor is not None:
        at = read_cursor(MessageCursor, cursor)
    beside = PageBeside(limit, at.order == "desc", at.anchor if cursor is not None else None, at.newer)
    try:
        page = await app.timeline.page(session_id, beside)
    except UnknownAnchor as gone:
        raise invalid_cursor(gone.message) from None
    return SessionMessagesResponse(data=page.entries, cursor=at.ends(page.first, page.last))


@routes.get("/message/{messageID}", responses=described(SessionNotFoundError, MessageNotFoundError), dependencies=READS)
async def message(
    app: AppServices, session_id: SessionIdPath, message_id: Annotated[str, Path(alias="messageID", pattern="^msg_")]
) -> Data[SessionMessage]:
    return data(await app.timeline.message(session_id, message_id))


@routes.get("/context", dependencies=READS)
async def context(app: AppServices, session_id: SessionIdPath) -> Data[list[SessionMessage]]:
    """What the model is sent of the session: from the newest summary on."""
    return data(list(await app.timeline.context(session_id)))


@routes.get("/history", dependencies=READS)
async def history(
    app: AppServices,
    session_id: SessionIdPath,
    limit: Annotated[int, Query(gt=0, le=MOST_EVENTS)] = MOST_EVENTS,
    after: After = 0,
) -> SessionEventPage:
    found = (await app.timeline.events(session_id, after, limit)).events
    return SessionEventPage(data=found[:limit], has_more=len(found) > limit)


_STREAM: dict[int | str, dict[str, Any]] = {200: {"description": "Event stream", "model": TimelineEvent}}


@routes.get("/event", response_class=EventSourceResponse, responses=_STREAM, dependencies=READS)
async def events(request: Request, app: AppServices, who: Who, session_id: SessionIdPath, after: After = 0) -> Response:
    """What happened in the session behind an event, then what happens."""
    listener = listen(app, who, None, deltas=True, second=True, session_id=session_id)
    return await stream(request, app, who, listener, _frames(app.timeline.follow(session_id, after, listener)))


async def _frames(pages: AsyncIterator[list[TimelineEvent]]) -> AsyncIterator[bytes]:
    """A comment, where nothing has happened, keeps the connection open."""
    async for page in pages:
        yield b"".join(b"data: %b\n\n" % event.wire_json() for event in page) or b": heartbeat\n\n"
