"""The event streams. Each frame is made once for all clients; here frames are only passed on.

A client is sent what OpenCode sends: no `id:` lines, which some of its clients cannot read, and a new stream after a reconnect. A
client that asks for ids can resume: by `ids=true`, by `parts=delta`, or by a `Last-Event-ID`, even an empty one. OpenCode's own
programs always get ids: they name themselves, resume by every id, and without ids miss events after a reconnect.

Also here: answers that take long. Their headers and a newline go out at once, then a newline from time to time, then one JSON
document, before which white space may stand. So proxies and clients see that the connection lives.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from fastapi import Depends, Header, Query, Request
from fastapi.responses import StreamingResponse
from sse_starlette import EventSourceResponse
from sse_starlette.sse import AppStatus
from starlette.types import Receive

from app.api.deps import AppServices, Here, UserAgent, Who
from app.api.json_route import router
from app.api.roles import READS
from app.events.bus.base import UNKNOWN_MARK, Audience, Event, EventId, read_cursor
from app.events.bus.frames import EventFrame, pieces
from app.events.bus.listener import Listener
from app.schema.base import Wire
from app.schema.errors import ServiceError, TooMany
from app.schema.event import AnnouncedEvent, AnyEvent, EventServerConnected, EventServerHeartbeat, EventServerResync, GlobalEvent
from app.server import Server
from app.sessions.replay import ReplayPage
from app.users.principal import Principal

log = logging.getLogger(__name__)

KEEP_ALIVE_SECONDS = 15.0

LongWork = Coroutine[Any, Any, bytes]


def keeping_alive(work: LongWork) -> StreamingResponse:
    """The work begins at once. A client that disconnects, even before the first byte, does not stop it."""
    return StreamingResponse(_behind_newlines(asyncio.create_task(_body_or_error(work))), media_type="application/json")


LoginCheck = Callable[[], Awaitable[bool]]
"""Whether the login of a request is still valid."""


async def _login_check(request: Request, app: AppServices, who: Who) -> LoginCheck:
    return partial(app.login.still_holds, request.headers.get("authorization"), who)


LoginHolds = Annotated[LoginCheck, Depends(_login_check)]


def waiting_with_client(work: Callable[[], LongWork], login_holds: LoginCheck) -> StreamingResponse:
    """The work begins with the answer, and ends when the client disconnects. Nothing is told once the login has ended."""
    return StreamingResponse(_while_read(work, login_holds), media_type="application/json")


async def _while_read(work: Callable[[], LongWork], login_holds: LoginCheck) -> AsyncIterator[bytes]:
    task = asyncio.create_task(_body_or_error(work()))
    try:
        async for piece in _behind_newlines(task):
            if not await login_holds():
                return
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
    """Returns when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _body_or_error(work: LongWork) -> bytes:
    """The status was sent already, so a failure is reported in the body."""
    try:
        return await work
    except ServiceError as error:
        if error.status >= 500:
            log.warning("an answer could not be given: %s: %s", error.name, error.message)
        return orjson.dumps(error.body(), default=str)
    except Exception as error:
        log.exception("an answer could not be given")
        return orjson.dumps({"name": "UnknownError", "data": {"message": f"{type(error).__name__}: see the server's log"}})


_OPENCODE = "opencode/"
"""How OpenCode's programs name themselves: `opencode/1.1.34`."""
EVENTS_AHEAD_SECONDS = 0.2


async def behind_its_events(user_agent: str, answer: Coroutine[Any, Any, bytes]) -> bytes:
    """The answer, which OpenCode's programs are sent a while after its events: `opencode run --attach` of 1.18 ends with the
    answer, and never prints events that it has not read by then. OpenCode answers 0.1 to 0.4 s after the last text."""
    body = await answer
    if user_agent.startswith(_OPENCODE):
        await asyncio.sleep(EVENTS_AHEAD_SECONDS)
    return body


routes = router("", 400, 403, 429, tags=["event"])
tokens = router("/auth", tags=["event"])
# Streams live through the grace period of a server that stops: clients answer what its turns ask. `MemoryBus.close` ends them.
AppStatus.disable_automatic_graceful_drain()  # type: ignore[no-untyped-call]

RETRY_MS = (250, 1000)

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}

Parts = Annotated[Literal["full", "delta"], Query(description="`delta`: part frames carry only the text that a part gained")]
Ids = Annotated[
    bool, Query(description="Events carry an `id:`, to resume from. So they do with `parts=delta` or a `Last-Event-ID`")
]
Cursor = Annotated[
    str | None, Header(alias="Last-Event-ID", description="The id of the last event received; empty: of none, but send ids")
]
CursorInQuery = Annotated[
    str | None, Query(alias="lastEventID", description="The same, for a new EventSource, which can send no header")
]
Token = Annotated[str | None, Query(description="From POST /auth/event-token, instead of a login in a header")]


class TooManyStreams(TooMany):
    name = "TooManyStreamsError"

    def __init__(self, most: int) -> None:
        super().__init__(f"{most} event streams are open already (OPENSESSION_MAX_EVENT_STREAMS). Close one, or try again later.")


@dataclass(frozen=True, slots=True)
class WantedEvents:
    """What a client asks for. `cursor`: the id of the last event that the client has, None for a new client."""

    deltas: bool
    ids: bool = False
    cursor: str | None = None
    second: bool = False
    """In the second API's form."""


async def _wanted_events(
    parts: Parts = "full",
    ids: Ids = False,
    last_event_id: Cursor = None,
    cursor: CursorInQuery = None,
    user_agent: UserAgent = "",
    token: Token = None,
) -> WantedEvents:
    """The guard has checked the token."""
    deltas, resumes = parts == "delta", last_event_id is not None or cursor is not None
    ids = ids or user_agent.startswith(_OPENCODE) or deltas or resumes
    return WantedEvents(deltas, ids, last_event_id or cursor or None)


Wanted = Annotated[WantedEvents, Depends(_wanted_events)]


def _stream_of(model: object) -> dict[int | str, dict[str, object]]:
    return {200: {"description": "Event stream", "model": model}}


@routes.get("/event", response_class=EventSourceResponse, responses=_stream_of(AnyEvent), dependencies=READS)
async def subscribe(request: Request, app: AppServices, who: Who, here: Here, wanted: Wanted) -> EventSourceResponse:
    """The events of one directory."""
    return await open_stream(request, app, who, here.directory, wanted)


_GLOBAL = _stream_of(GlobalEvent)


@routes.get(
    "/global/event", operation_id="global.event", response_class=EventSourceResponse, responses=_GLOBAL, dependencies=READS
)
async def subscribe_globally(request: Request, app: AppServices, who: Who, wanted: Wanted) -> EventSourceResponse:
    """The events of all directories, each with its directory, and the server's own."""
    return await open_stream(request, app, who, None, wanted)


async def open_stream(
    request: Request, app: Server, who: Principal, directory: str | None, wanted: WantedEvents
) -> EventSourceResponse:
    listener = listen(app, who, directory, wanted)
    return await stream(request, app, who, listener, _frames(app, listener, wanted))


def listen(app: Server, who: Principal, directory: str | None, wanted: WantedEvents, session_id: str | None = None) -> Listener:
    """Raises TooManyStreams."""
    require_place_for_stream(app)
    audience = None  # receives everything
    if not who.may_see_all:
        audience = Audience(who.name, lambda path: app.workspaces.admits(who, path), app.secret.cursors(who.name))
    return Listener(
        app.bus,
        directory,
        deltas=wanted.deltas,
        ids=wanted.ids,
        second=wanted.second,
        audience=audience,
        user=who.name,
        session_id=session_id,
    )


async def stream(
    request: Request, app: Server, who: Principal, listener: Listener, frames: AsyncIterator[bytes]
) -> EventSourceResponse:
    """Streams the frames until the listener is closed. Raises what the first frame raises."""
    try:
        first = await anext(frames)  # an error here is still an answer with a status
    except BaseException:
        listener.close()
        raise
    watching = partial(_keep_open, request, app, who, listener)
    return EventSourceResponse(_chained(first, frames), headers=_HEADERS, ping=0, data_sender_callable=watching)


def require_place_for_stream(app: Server) -> None:
    """Raises TooManyStreams."""
    if app.bus.listeners() >= app.settings.max_event_streams:
        raise TooManyStreams(app.settings.max_event_streams)


async def _keep_open(request: Request, app: Server, who: Principal, listener: Listener) -> None:
    """Returns when the client has disconnected, or its login has ended: its token was revoked or has expired, its user was
    removed or changed. An error while watching ends the stream too, or it might outlive its login.

    Heartbeats go through the listener's queue: those of the library (`ping`) would come between the pieces of a large event, and
    have an id before those of events that wait."""
    given = request.headers.get("authorization")
    try:
        while await app.login.still_holds(given, who):
            await asyncio.sleep(app.choices.heartbeat_seconds)
            listener.push(listener.frame(Event.of(EventServerHeartbeat(), journaled=False)))
    finally:
        listener.close()
        if listener.fell_behind:
            app.observer.cut_off()


class EventToken(Wire):
    """`expires` in epoch milliseconds."""

    token: str
    expires: int


@tokens.post("/event-token", tags=["auth"], dependencies=READS)
async def event_token(app: AppServices, who: Who) -> EventToken:
    """A login for one stream that is opened within half a minute, `GET /event?token=…`: an EventSource can send no header."""
    token, expires = await app.login.event_tokens.issue(who)
    return EventToken(token=token, expires=expires)


async def _chained(first: bytes, frames: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in frames:
        yield piece


async def _frames(app: Server, listener: Listener, wanted: WantedEvents) -> AsyncIterator[bytes]:
    """The greeting and, for a client that comes back, what it missed; then new events. An unknown cursor counts as too old."""
    if not wanted.ids:
        yield _frame(listener, EventServerConnected())
    elif wanted.cursor is None:
        yield await _greeting(app, listener)
    else:
        user = listener.audience.owner if listener.audience else None
        seen = read_cursor(wanted.cursor) if user is None else app.secret.cursors(user).open(wanted.cursor)
        async for piece in _missed(app, listener, seen):
            yield piece
    if listener.form.second:
        from app.sessions.timeline import service

        async for piece in service.written(app.timeline, listener):
            yield piece
    async for piece in listener:
        yield piece
    if wanted.ids and app.draining.has_begun:
        # A server that stops sends its clients elsewhere, or to the next start: soon, but not all at one moment. The `retry` goes
        # out with a heartbeat, because simple readers do not expect a frame without data.
        yield b"retry: %d\n%b" % (random.randint(*RETRY_MS), _frame(listener, EventServerHeartbeat()))


async def _replayed(app: Server, listener: Listener, frames: list[EventFrame], seen: EventId) -> AsyncIterator[bytes]:
    if listener.form.second:
        from app.sessions.timeline import service

        async for piece in service.with_session_events(app.timeline, frames, listener.form, seen):
            yield piece
    else:
        for written in pieces([frame for frame in frames if not frame.event.is_second_only], listener.form):
            yield written


async def _greeting(app: Server, listener: Listener) -> bytes:
    """Greets a new client with the cursor after which the listener began. The client reads earlier changes next. It is sent what
    is announced during the greeting, for it may have prompted meanwhile and read nothing."""
    listener.resume(listener.began_behind, await app.replay.streaming(listener.directory, listener.began_behind))
    return _frame(listener, EventServerConnected(), listener.began_behind)


async def _missed(app: Server, listener: Listener, seen: EventId) -> AsyncIterator[bytes]:
    """What the client missed, page by page, as it takes them. Only from the last page on does the listener keep what is
    published: it would overflow while a slow client is sent a long replay. Of the second API's events that are made of one, the
    client may have `seen` some."""
    cursor = seen.seq - 1 if listener.form.second and seen.seq > 0 and seen.mark < UNKNOWN_MARK else seen.seq
    page = await _page(app, listener, cursor)
    if page.resync and cursor < seen.seq:  # the journal begins behind what the client has seen
        page = await _page(app, listener, seen.seq)
    greeting = Event.of(EventServerConnected(), journaled=False)
    yield EventFrame(greeting, seen if cursor < seen.seq else greeting.id(cursor)).written(listener.form)
    while True:
        if page.resync:
            yield _frame(listener, EventServerResync(), page.upto)
        async for piece in _replayed(app, listener, list(map(listener.frame, page.events)), seen):
            yield piece
        if page.last or listener.closed:
            return
        page = await _page(app, listener, page.upto)


async def _page(app: Server, listener: Listener, cursor: int) -> ReplayPage:
    """The page after the cursor. If it is the last one, the listener resumes after it."""
    listener.unpause()
    page = await app.replay.page(cursor, listener.directory, listener.audience)
    if page.last:
        listener.resume(page.upto, await app.replay.streaming(listener.directory, page.upto))
    else:
        listener.pause()
    return page


def _frame(listener: Listener, event: AnnouncedEvent, seq: int | None = None) -> bytes:
    return listener.frame(Event(event.type, event.wire_json(), journaled=False, seq=seq)).written(listener.form)
