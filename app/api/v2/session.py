"""Sessions: list, create, prompt, interrupt, wait, compact, revert."""

import asyncio
from typing import Annotated, Literal

from fastapi import Query, Request

from app.agent.definitions import find as find_agent
from app.api.audit import CREATED
from app.api.deps import AppServices, SessionIdPath, Who, instance_of
from app.api.long_answers import disconnected
from app.api.roles import PROMPTS, READS, WRITES
from app.api.v2.errors import (
    ConflictError,
    ForbiddenError,
    InvalidCursorError,
    MessageNotFoundError,
    SessionBusyError,
    SessionNotFoundError,
    described,
)
from app.api.v2.shapes import Data, InstanceOfSession, Order, PageCursor, PageEnds, data, invalid_cursor, read_cursor, router
from app.provider.models.selection import ProviderModelNotFoundError
from app.schema.base import SessionID, Wire
from app.schema.errors import BadRequest, Conflict, MessageNotFound
from app.schema.part import ModelRef
from app.schema.session import CreateInput, NoWorkspace, RevertInput, RevertState, SessionModel
from app.schema.timeline import LocationRef, SessionInputAdmitted, SessionPromptInput, SessionV2Info
from app.session.revert_target import revert_state
from app.storage.repositories.session_rows import PageBeside, SessionFilter, UnknownAnchor
from app.timeline.entries import session_info
from app.workspace.instance import Instance

routes = router("/session", tags=["session"])
of_one = router("/session/{sessionID}", SessionNotFoundError, tags=["session"])
routers = (routes, of_one)

_BUSY = described(SessionNotFoundError, SessionBusyError)

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


@routes.get("", operation_id="v2.session.list", responses=described(InvalidCursorError), dependencies=READS)
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
    try:
        found = [] if workspace else await app.store.sessions_beside(_filter(at, who.visible_owner), beside)
    except UnknownAnchor as gone:
        raise invalid_cursor(gone.message) from None
    ends = at.ends(found[0].id, found[-1].id) if found else PageEnds()
    return SessionsResponse(data=[session_info(session) for session in found], cursor=ends)


def _filter(at: SessionCursor, owner: str | None) -> SessionFilter:
    directories = None if at.directory is None else [at.directory]
    return SessionFilter(at.project, directories, path=at.subpath or None, owner=owner, search=at.search)


@routes.post("", responses=described(ForbiddenError, ConflictError), dependencies=WRITES)
async def create(request: Request, app: AppServices, who: Who, body: SessionV2Create | None = None) -> Data[SessionV2Info]:
    """With an `id` that there is already, that session is answered."""
    wanted = body or SessionV2Create()
    instance = await instance_of(app, who, wanted.location.directory if wanted.location else None)
    _require_agent(instance, wanted.agent)
    _require_model(instance, wanted.model)
    service, name = app.sessions, who.name
    given = CreateInput(agent=wanted.agent, model=wanted.model)
    if wanted.id is None:
        session = await service.create(instance.location, given, name)
    else:
        session = await service.find_or_create(wanted.id, instance.location, given, name)
        if not who.may_see(session.owner or ""):
            raise Conflict(f"The id {wanted.id} is in use. Choose another one, or leave it out.")
    request.scope[CREATED] = session.id
    return data(session_info(session))


def _require_agent(instance: Instance, agent: str | None) -> None:
    """Raises BadRequest."""
    if agent is not None:
        find_agent(instance.agents, agent)


def _require_model(instance: Instance, model: SessionModel | None) -> None:
    """Raises BadRequest."""
    try:
        if model is not None:
            instance.models.find(ModelRef(provider_id=model.provider_id, model_id=model.id))
    except ProviderModelNotFoundError as unknown:
        raise BadRequest(unknown.message, ["model"], model.wire() if model else None) from None


@routes.get("/active", dependencies=READS)
async def active(app: AppServices, who: Who) -> Data[dict[str, SessionActive]]:
    """The sessions that are not idle, on whatever server."""
    busy = await app.live.busy_sessions()
    seen = busy if who.visible_owner is None else await app.sessions.owned(busy, who.visible_owner)
    return data({each: SessionActive() for each in sorted(seen)})


@of_one.get("", dependencies=READS)
async def get(app: AppServices, session_id: SessionIdPath) -> Data[SessionV2Info]:
    return data(session_info(await app.store.session(session_id)))


@of_one.post("/agent", status_code=204, dependencies=WRITES)
async def switch_agent(app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath, body: AgentSwitch) -> None:
    """For the prompts that come."""
    _require_agent(instance, body.agent)
    await app.sessions.switch_agent(instance.location, session_id, body.agent)


@of_one.post("/model", status_code=204, dependencies=WRITES)
async def switch_model(app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath, body: ModelSwitch) -> None:
    """For the prompts that come."""
    _require_model(instance, body.model)
    await app.sessions.switch_model(instance.location, session_id, body.model)


@of_one.post("/prompt", responses=described(SessionNotFoundError, ConflictError), dependencies=PROMPTS)
async def prompt(
    app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath, body: SessionPromptInput
) -> Data[SessionInputAdmitted]:
    return data(await app.admissions.admit(instance, session_id, body))


@of_one.post("/compact", status_code=204, responses=_BUSY, dependencies=PROMPTS)
async def compact(app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath) -> None:
    """Answers when the summary is there."""
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


_STAGED = described(SessionNotFoundError, MessageNotFoundError, SessionBusyError)


@of_one.post("/revert/stage", operation_id="v2.session.revert.stage", responses=_STAGED, dependencies=WRITES)
async def stage_revert(
    app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath, body: RevertInput
) -> Data[RevertState]:
    """The files are restored now; the messages from there on go with the commit, or the next prompt."""
    await app.store.message(session_id, body.message_id)
    session = await app.actions.revert(instance, session_id, body)
    if session.revert is None:
        raise MessageNotFound(session_id, body.message_id)
    return data(revert_state(session.revert))


@of_one.post("/revert/clear", operation_id="v2.session.revert.clear", status_code=204, responses=_BUSY, dependencies=WRITES)
async def clear_revert(app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath) -> None:
    """The files are again as they were before the revert."""
    await app.actions.unrevert(instance, session_id)


@of_one.post("/revert/commit", operation_id="v2.session.revert.commit", status_code=204, responses=_BUSY, dependencies=WRITES)
async def commit_revert(app: AppServices, instance: InstanceOfSession, session_id: SessionIdPath) -> None:
    """The messages that were reverted are removed for good."""
    await app.actions.commit_revert(instance, session_id)
