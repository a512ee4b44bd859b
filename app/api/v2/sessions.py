"""Sessions: list, create, prompt, interrupt, wait, compact, revert; in one session: messages, the model's context, its events;
and the event stream of all directories, where each event names its own. Part events there are deltas. A client that sends
`Last-Event-ID`, which may be the `id` of any event, is sent what it missed."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from fastapi.responses import Response
from pydantic import Field
from sse_starlette import EventSourceResponse

from app.api.audit import CREATED
from app.api.deps import AppServices, SessionIdPath, Who, instance_of
from app.api.errors import described
from app.api.event import Cursor, CursorInQuery, Token, WantedEvents, disconnected, listen, open_stream, stream
from app.api.roles import PROMPTS, READS, WRITES
from app.api.v2.admission import admit
from app.api.v2.shapes import Data, InstanceOfSession, Order, PageCursor, PageEnds, read_cursor, router
from app.events.bus.frames import OWN_TYPES
from app.providers.selection import ProviderModelNotFoundError
from app.record.repositories.session_rows import PageBeside, SessionFilter
from app.schema.base import MessageID, SessionID, Wire
from app.schema.errors import BadRequest, Conflict, InvalidCursor, MessageNotFound
from app.schema.event import AnnouncedEvent
from app.schema.part import ModelRef
from app.schema.session import CreateInput, NoWorkspace, RevertInput, RevertState, SessionModel
from app.schema.timeline import (
    TIMELINE_EVENTS,
    LocationRef,
    SessionInputAdmitted,
    SessionMessage,
    SessionPromptInput,
    SessionV2Info,
    TimelineEvent,
    described_types,
)
from app.sessions.revert_target import revert_state
from app.sessions.timeline.entries import session_info
from app.sessions.timeline.events import LARGEST
from app.workspace.instance import Instance

routes = router("/session", tags=["session"])
of_one = router("/session/{sessionID}", "SessionNotFoundError", tags=["session"])
routers = (routes, of_one)
everything = router("", tags=["event"])

_BUSY = described("SessionNotFoundError", "SessionBusyError")

DEFAULT_LIMIT = 50


class SessionCursor(PageCursor):
    anchor: SessionID
    project: str | None = None
    directory: str | None = None
    subpath: str | None = None
    search: str | None = None


class SessionsResponse(Wire):
    data: list[SessionV2Info]
    cursor: PageEnds


class LocationInput(LocationRef):
    workspace_id: NoWorkspace | None = None


class SessionV2Create(Wire):
    id: SessionID | None = None
    agent: str | None = None
    model: SessionModel | None = None
    location: LocationInput | None = None


class AgentSwitch(Wire):
    agent: str


class ModelSwitch(Wire):
    model: SessionModel


class SessionActive(Wire):
    type: Literal["running"] = "running"


@routes.get("", operation_id="v2.session.list", responses=described("InvalidCursorError"), dependencies=READS)
async def list_sessions(
    app: AppServices,
    who: Who,
    workspace: Annotated[str | None, Query(pattern="^wrk", description="There are none")] = None,
    limit: Annotated[int, Query(gt=0, le=1_000_000)] = DEFAULT_LIMIT,
    order: Annotated[Order | None, Query(description="By creation; desc, the newest first, if absent")] = None,
    search: Annotated[str | None, Query(max_length=2000, description="Part of the title, whatever its case")] = None,
    directory: Annotated[str | None, Query(description="Only sessions of exactly this directory")] = None,
    project: Annotated[str | None, Query(description="Only sessions of this project")] = None,
    subpath: Annotated[
        str | None, Query(description="Only sessions of this path or below it, from the top of their checkout")
    ] = None,
    cursor: Annotated[str | None, Query(description="From an answer; it stands for all else but the limit")] = None,
) -> SessionsResponse:
    at = SessionCursor(
        anchor="ses", newer=False, order=order or "desc", project=project, directory=directory, subpath=subpath, search=search
    )
    if cursor is not None:
        at = read_cursor(SessionCursor, cursor)
    beside = PageBeside(limit, at.order == "desc", at.anchor if cursor is not None else None, at.newer)
    directories = None if at.directory is None else [os.path.normpath(at.directory)]  # noqa: ASYNC240  asks no disk
    wanted = SessionFilter(at.project, directories, path=at.subpath or None, owner=who.visible_owner, search=at.search)
    found = [] if workspace else await app.store.sessions_beside(wanted, beside)
    return SessionsResponse(data=[session_info(session) for session in found], cursor=at.ends([session.id for session in found]))


@routes.post("", responses=described("ForbiddenError", "ConflictError"), dependencies=WRITES)
async def create(request: Request, app: AppServices, who: Who, body: SessionV2Create | None = None) -> Data[SessionV2Info]:
    """With the `id` of an existing session, that session is the answer."""
    wanted = body or SessionV2Create()
    instance = await instance_of(app, who, wanted.location.directory if wanted.location else None)
    if wanted.agent is not None:
        instance.agent(wanted.agent)
    if wanted.model is not None:
        _require_model(instance, wanted.model)
    given = CreateInput(agent=wanted.agent, model=wanted.model)
    session = await app.sessions.create(instance.location, given, who.name, wanted.id)
    if wanted.id is not None and not who.may_see(session.owner or ""):
        raise Conflict(f"The id {wanted.id} is in use. Choose another one, or leave it out.")
    request.scope[CREATED] = session.id
    return Data(data=session_info(session))


def _require_model(instance: Instance, model: SessionModel) -> None:
    """Raises BadRequest."""
    try:
        instance.models.find(ModelRef(provider_id=model.provider_id, model_id=model.id))
    except ProviderModelNotFoundError as unknown:
        raise BadRequest(unknown.message, ["model"], model.wire()) from None


@routes.get("/active", dependencies=READS)
async def active(app: AppServices, who: Who) -> Data[dict[str, SessionActive]]:
    """The sessions that are not idle, on whatever server they run."""
    busy = await app.live.busy_sessions()
    seen = busy if who.visible_owner is None else await app.sessions.owned(busy, who.visible_owner)
    return Data(data={each: SessionActive() for each in sorted(seen)})


@of_one.get("", dependencies=READS)
async def get(app: AppServices, session_id: SessionIdPath) -> Data[SessionV2Info]:
    return Data(data=session_info(await app.store.session(session_id)))


@of_one.post("/agent", status_code=204, dependencies=WRITES)
async def switch_agent(app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath, body: AgentSwitch) -> None:
    """For prompts from now on."""
    instance.agent(body.agent)
    await app.sessions.switch_agent(instance.location, session_id, body.agent)


@of_one.post("/model", status_code=204, dependencies=WRITES)
async def switch_model(app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath, body: ModelSwitch) -> None:
    """For prompts from now on."""
    _require_model(instance, body.model)
    await app.sessions.switch_model(instance.location, session_id, body.model)


@of_one.post("/prompt", responses=described("SessionNotFoundError", "ConflictError"), dependencies=PROMPTS)
async def prompt(
    app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath, body: SessionPromptInput
) -> Data[SessionInputAdmitted]:
    return Data(data=await admit(app, instance, session_id, body))


@of_one.post("/compact", status_code=204, responses=_BUSY, dependencies=PROMPTS)
async def compact(app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath) -> None:
    """Answers when the summary is stored."""
    await app.actions.compact(instance, session_id)


@of_one.post("/wait", status_code=204, dependencies=WRITES)
async def wait(request: Request, app: AppServices, session_id: SessionIdPath) -> None:
    """Answers when the session is idle and its queue empty. Waits no longer than the client does."""
    waiting = asyncio.create_task(app.queue.all_answered(session_id), name=f"wait for {session_id}")
    gone = asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
    finally:
        waiting.cancel()
        gone.cancel()


@of_one.post("/interrupt", status_code=204, dependencies=WRITES)
async def interrupt(app: AppServices, session_id: SessionIdPath) -> None:
    """Answers when the session is idle and its record finished."""
    await app.store.session_json(session_id)
    await app.live.abort(session_id)


_STAGED = described("SessionNotFoundError", "MessageNotFoundError", "SessionBusyError")


@of_one.post("/revert/stage", operation_id="v2.session.revert.stage", responses=_STAGED, dependencies=WRITES)
async def stage_revert(
    app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath, body: RevertInput
) -> Data[RevertState]:
    """The files are restored now. The messages from there on are removed by the commit, or by the next prompt."""
    await app.store.message(session_id, body.message_id)
    session = await app.actions.revert(instance, session_id, body)
    if session.revert is None:
        raise MessageNotFound(session_id, body.message_id)
    return Data(data=revert_state(session.revert))


@of_one.post("/revert/clear", operation_id="v2.session.revert.clear", status_code=204, responses=_BUSY, dependencies=WRITES)
async def clear_revert(app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath) -> None:
    """Restores the files as they were before the revert."""
    await app.actions.unrevert(instance, session_id)


@of_one.post("/revert/commit", operation_id="v2.session.revert.commit", status_code=204, responses=_BUSY, dependencies=WRITES)
async def commit_revert(app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath) -> None:
    """The messages that were reverted are removed for good."""
    await app.actions.commit_revert(instance, session_id)


# What is in a session.


MAX_MESSAGES = 200
MAX_EVENTS = 100

After = Annotated[int, Query(ge=0, le=LARGEST, description="Events after this `durable.seq`; all if absent")]


class MessageCursor(PageCursor):
    anchor: MessageID


class SessionMessagesResponse(Wire):
    data: list[SessionMessage]
    cursor: PageEnds


class SessionEventPage(Wire):
    data: list[TimelineEvent]
    has_more: bool


@of_one.get("/message", responses=described("InvalidCursorError"), dependencies=READS)
async def messages(
    app: AppServices,
    session_id: SessionIdPath,
    limit: Annotated[int, Query(ge=1, le=MAX_MESSAGES)] = DEFAULT_LIMIT,
    order: Annotated[Order | None, Query(description="desc, the newest first, if absent")] = None,
    cursor: Annotated[str | None, Query(description="From an answer, without `order`")] = None,
) -> SessionMessagesResponse:
    if cursor is not None and order is not None:
        raise InvalidCursor("Cursor cannot be combined with order")
    at = MessageCursor(anchor="msg", newer=False, order=order or "desc")
    if cursor is not None:
        at = read_cursor(MessageCursor, cursor)
    beside = PageBeside(limit, at.order == "desc", at.anchor if cursor is not None else None, at.newer)
    ids, found = await app.timeline.page(session_id, beside)
    return SessionMessagesResponse(data=found, cursor=at.ends(ids))


@of_one.get("/message/{messageID}", responses=described("SessionNotFoundError", "MessageNotFoundError"), dependencies=READS)
async def message(
    app: AppServices, session_id: SessionIdPath, message_id: Annotated[str, Path(alias="messageID", pattern="^msg_")]
) -> Data[SessionMessage]:
    return Data(data=await app.timeline.message(session_id, message_id))


@of_one.get("/context", dependencies=READS)
async def context(app: AppServices, session_id: SessionIdPath) -> Data[list[SessionMessage]]:
    """The messages that the model is sent: from the newest summary on."""
    return Data(data=list(await app.timeline.context(session_id)))


@of_one.get("/history", dependencies=READS)
async def history(
    app: AppServices,
    session_id: SessionIdPath,
    limit: Annotated[int, Query(gt=0, le=MAX_EVENTS)] = MAX_EVENTS,
    after: After = 0,
) -> SessionEventPage:
    found, _ = await app.timeline.events(session_id, after, limit)
    return SessionEventPage(data=found[:limit], has_more=len(found) > limit)


_STREAM: dict[int | str, dict[str, Any]] = {200: {"description": "Event stream", "model": TimelineEvent}}


@of_one.get("/event", response_class=EventSourceResponse, responses=_STREAM, dependencies=READS)
async def events(request: Request, app: AppServices, who: Who, session_id: SessionIdPath, after: After = 0) -> Response:
    """The session's events after a number, then new ones."""
    listener = listen(app, who, None, WantedEvents(deltas=True, second=True), session_id)
    return await stream(request, app, who, listener, _frames(app.timeline.follow(session_id, after, listener)))


async def _frames(pages: AsyncIterator[list[TimelineEvent]]) -> AsyncIterator[bytes]:
    """Without events a comment keeps the connection open."""
    async for page in pages:
        yield b"".join(b"data: %b\n\n" % event.wire_json() for event in page) or b": heartbeat\n\n"


# The event stream.


class EventPlace(Wire):
    directory: str


def event_types() -> dict[str, str]:
    """The events of this stream, each with its description. A heartbeat is no event here but a comment."""
    first = {event.model_fields["type"].default: str(event.__doc__) for event in AnnouncedEvent.__subclasses__()}
    own = {type: first[of_first] for of_first, type in OWN_TYPES.items()}
    return {type: text for type, text in {**first, **own, **TIMELINE_EVENTS}.items() if type != "server.heartbeat"}


class V2Event(Wire):
    """`data`: the `properties` of the first API. `location` is absent if the event is of the whole server."""

    id: str
    type: Annotated[str, Field(description=described_types(event_types()))]
    location: EventPlace | None = None
    data: Any


_ANSWERS = {**described("TooManyStreamsError"), 200: {"description": "Event stream", "model": V2Event}}


@everything.get("/event", response_class=EventSourceResponse, responses=_ANSWERS, dependencies=READS)
async def subscribe(
    request: Request, app: AppServices, who: Who, last_event_id: Cursor = None, cursor: CursorInQuery = None, token: Token = None
) -> EventSourceResponse:
    resumes = last_event_id is not None or cursor is not None
    wanted = WantedEvents(deltas=True, ids=resumes, cursor=last_event_id or cursor or None, second=True)
    return await open_stream(request, app, who, None, wanted)
