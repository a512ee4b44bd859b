"""Sessions: list, create, prompt, interrupt, wait, compact, revert."""

import asyncio
from typing import Annotated, Literal

from fastapi import Path, Query
from fastapi.responses import Response

from app.agent.definitions import find as find_agent
from app.api.audit import CREATED
from app.api.deps import instance_of, json_bytes, session_instance
from app.api.json_route import ServerRequest
from app.api.keepalive_json import disconnected
from app.api.v2.answers import Data, data, no_content, router
from app.api.v2.cursors import PageEnds, invalid_cursor, read_cursor, write_cursor
from app.api.v2.errors import (
    ConflictError,
    ForbiddenError,
    InvalidCursorError,
    MessageNotFoundError,
    SessionBusyError,
    SessionNotFoundError,
    described,
)
from app.provider.models.selection import ProviderModelNotFoundError
from app.schema.base import SessionID, Wire
from app.schema.errors import BadRequest, Conflict, MessageNotFound
from app.schema.part import ModelRef
from app.schema.session import CreateInput, NoWorkspace, RevertInput, RevertState, SessionModel
from app.schema.timeline import LocationRef, SessionInputAdmitted, SessionPromptInput, SessionV2Info
from app.session.revert_state import revert_state
from app.storage.repositories.pages import PageBeside, UnknownAnchor
from app.storage.repositories.session_rows import SessionFilter
from app.timeline.sessions import session_info
from app.workspace.instance import Instance

routes = router(tags=["session"])

SessionIdInPath = Annotated[str, Path(alias="sessionID", pattern="^ses")]
Order = Literal["asc", "desc"]

DEFAULT_LIMIT = 50


class SessionCursor(Wire):
    """`anchor`: the session that the page stands beside."""

    anchor: SessionID
    newer: bool
    order: Order
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


@routes.get("/session", operation_id="v2.session.list", response_model=SessionsResponse, responses=described(InvalidCursorError))
async def list_sessions(
    request: ServerRequest,
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
) -> Response:
    at = SessionCursor(
        anchor="ses", newer=False, order=order or "desc", project=project, directory=directory, subpath=subpath, search=search
    )
    if cursor is not None:
        at = read_cursor(SessionCursor, cursor)
    beside = PageBeside(limit, at.order == "desc", at.anchor if cursor is not None else None, at.newer)
    store = request.services.sessions.store
    try:
        found = [] if workspace else await store.sessions_beside(_filter(at, request.principal.visible_owner), beside)
    except UnknownAnchor as gone:
        raise invalid_cursor(gone.message) from None
    ends = PageEnds()
    if found:
        previous = at.model_copy(update={"anchor": found[0].id, "newer": at.order == "desc"})
        following = at.model_copy(update={"anchor": found[-1].id, "newer": at.order == "asc"})
        ends = PageEnds(previous=write_cursor(previous), next=write_cursor(following))
    return json_bytes(SessionsResponse(data=[session_info(session) for session in found], cursor=ends).wire_json())


def _filter(at: SessionCursor, owner: str | None) -> SessionFilter:
    directories = None if at.directory is None else [at.directory]
    return SessionFilter(at.project, directories, path=at.subpath or None, owner=owner, search=at.search)


@routes.post(
    "/session",
    operation_id="v2.session.create",
    response_model=Data[SessionV2Info],
    responses=described(ForbiddenError, ConflictError),
)
async def create(request: ServerRequest, body: SessionV2Create | None = None) -> Response:
    """With an `id` that there is already, that session is answered."""
    wanted = body or SessionV2Create()
    instance = await instance_of(request, wanted.location.directory if wanted.location else None)
    _require_agent(instance, wanted.agent)
    _require_model(instance, wanted.model)
    service, name = request.services.sessions.service, request.principal.name
    given = CreateInput(agent=wanted.agent, model=wanted.model)
    if wanted.id is None:
        session = await service.create(instance.location, given, name)
    else:
        session = await service.find_or_create(wanted.id, instance.location, given, name)
        if not request.principal.may_see(session.owner or ""):
            raise Conflict(f"The id {wanted.id} is in use. Choose another one, or leave it out.")
    request.scope[CREATED] = session.id
    return data(session_info(session).wire_json())


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


@routes.get(
    "/session/active", operation_id="v2.session.active", response_model=Data[dict[str, SessionActive]], responses=described()
)
async def active(request: ServerRequest) -> Response:
    """The sessions that are not idle, on whatever server."""
    sessions, owner = request.services.sessions, request.principal.visible_owner
    busy = await sessions.statuses.busy_sessions()
    seen = busy if owner is None else await sessions.service.owned(busy, owner)
    return json_bytes(Data[dict[str, SessionActive]](data={each: SessionActive() for each in sorted(seen)}).wire_json())


@routes.get(
    "/session/{sessionID}",
    operation_id="v2.session.get",
    response_model=Data[SessionV2Info],
    responses=described(SessionNotFoundError),
)
async def get(request: ServerRequest, session_id: SessionIdInPath) -> Response:
    return data(session_info(await request.services.sessions.store.session(session_id)).wire_json())


@routes.post(
    "/session/{sessionID}/agent",
    operation_id="v2.session.switchAgent",
    status_code=204,
    responses=described(SessionNotFoundError),
)
async def switch_agent(request: ServerRequest, session_id: SessionIdInPath, body: AgentSwitch) -> Response:
    """For the prompts that come."""
    instance = await session_instance(request, session_id, None)
    _require_agent(instance, body.agent)
    await request.services.sessions.service.switch_agent(instance.location, session_id, body.agent)
    return no_content()


@routes.post(
    "/session/{sessionID}/model",
    operation_id="v2.session.switchModel",
    status_code=204,
    responses=described(SessionNotFoundError),
)
async def switch_model(request: ServerRequest, session_id: SessionIdInPath, body: ModelSwitch) -> Response:
    """For the prompts that come."""
    instance = await session_instance(request, session_id, None)
    _require_model(instance, body.model)
    await request.services.sessions.service.switch_model(instance.location, session_id, body.model)
    return no_content()


@routes.post(
    "/session/{sessionID}/prompt",
    operation_id="v2.session.prompt",
    response_model=Data[SessionInputAdmitted],
    responses=described(SessionNotFoundError, ConflictError),
)
async def prompt(request: ServerRequest, session_id: SessionIdInPath, body: SessionPromptInput) -> Response:
    instance = await session_instance(request, session_id, None)
    admitted = await request.services.second_api().admissions.admit(instance, session_id, body)
    return data(admitted.wire_json())


@routes.post(
    "/session/{sessionID}/compact",
    operation_id="v2.session.compact",
    status_code=204,
    responses=described(SessionNotFoundError, SessionBusyError),
)
async def compact(request: ServerRequest, session_id: SessionIdInPath) -> Response:
    """Answers when the summary is there."""
    await request.services.runs.actions.compact(await session_instance(request, session_id, None), session_id)
    return no_content()


@routes.post(
    "/session/{sessionID}/wait", operation_id="v2.session.wait", status_code=204, responses=described(SessionNotFoundError)
)
async def wait(request: ServerRequest, session_id: SessionIdInPath) -> Response:
    """Answers when the session is idle and its queue empty. Waits no longer than the client does."""
    waiting = asyncio.create_task(request.services.runs.queue.all_answered(session_id), name=f"wait for {session_id}")
    gone = asyncio.create_task(disconnected(request.receive))
    try:
        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
        if waiting.done():
            waiting.result()
    finally:
        waiting.cancel()
        gone.cancel()
    return no_content()


@routes.post(
    "/session/{sessionID}/interrupt",
    operation_id="v2.session.interrupt",
    status_code=204,
    responses=described(SessionNotFoundError),
)
async def interrupt(request: ServerRequest, session_id: SessionIdInPath) -> Response:
    """Answers when the session is idle and its record finished."""
    await request.services.sessions.store.session_json(session_id)
    await request.services.runs.runner.abort(session_id)
    return no_content()


@routes.post(
    "/session/{sessionID}/revert/stage",
    operation_id="v2.session.revert.stage",
    response_model=Data[RevertState],
    responses=described(SessionNotFoundError, MessageNotFoundError, SessionBusyError),
)
async def stage_revert(request: ServerRequest, session_id: SessionIdInPath, body: RevertInput) -> Response:
    """The files are restored now; the messages from there on go with the commit, or the next prompt."""
    instance = await session_instance(request, session_id, None)
    await request.services.sessions.store.message(session_id, body.message_id)
    session = await request.services.runs.actions.revert(instance, session_id, body)
    if session.revert is None:
        raise MessageNotFound(session_id, body.message_id)
    return data(revert_state(session.revert).wire_json())


@routes.post(
    "/session/{sessionID}/revert/clear",
    operation_id="v2.session.revert.clear",
    status_code=204,
    responses=described(SessionNotFoundError, SessionBusyError),
)
async def clear_revert(request: ServerRequest, session_id: SessionIdInPath) -> Response:
    """The files are again as they were before the revert."""
    await request.services.runs.actions.unrevert(await session_instance(request, session_id, None), session_id)
    return no_content()


@routes.post(
    "/session/{sessionID}/revert/commit",
    operation_id="v2.session.revert.commit",
    status_code=204,
    responses=described(SessionNotFoundError, SessionBusyError),
)
async def commit_revert(request: ServerRequest, session_id: SessionIdInPath) -> Response:
    """The messages that were reverted are removed for good."""
    await request.services.runs.actions.commit_revert(await session_instance(request, session_id, None), session_id)
    return no_content()
