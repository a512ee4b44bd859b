"""Sessions: create, list, read, rename, delete, fork, abort."""

from typing import Annotated, Any, Literal

from fastapi import Query
from fastapi.responses import Response

from app.agent.definitions import find as find_agent
from app.api.access import AdminsOnly, require_session
from app.api.audit import CREATED
from app.api.cursors import CURSOR_PATTERN, NEXT_CURSOR, PageCursors, page_size
from app.api.deps import (
    TRUE,
    Directory,
    SessionIdPath,
    UserAgent,
    documented,
    instance_of,
    json_bytes,
    location_of,
    session_location,
    wire,
)
from app.api.json_route import ServerRequest, router
from app.api.share import public_base
from app.schema.base import MessageID
from app.schema.errors import BadRequest
from app.schema.part import ModelRef
from app.schema.session import CreateInput, FileDiff, ForkInput, Session, SessionStatus, Todo, UpdateInput
from app.session.share import shares_automatically
from app.users.oidc import PREFIX as OIDC_PREFIX

routes = router(prefix="/session", tags=["session"])

_DEMANDS_PATH = "opencode-client-python/"
"""A client of OpenCode 1.18 that takes no session without a path, though the description has it as optional."""


@routes.get("", operation_id="session.list", response_model=list[Session], responses=documented(400))
async def list_sessions(
    request: ServerRequest,
    where: Directory,
    directory: Annotated[str | None, Query(description="Only sessions of exactly this directory, without scope and path")] = None,
    scope: Annotated[Literal["project"] | None, Query(description="Of the whole project, whatever the directory is")] = None,
    path: Annotated[str | None, Query(max_length=4096, description="Only sessions with this path, or one below it")] = None,
    roots: Annotated[str | None, Query(description="Any value but false: only sessions without a parent")] = None,
    start: Annotated[float | None, Query(description="Only sessions updated at or after this time (ms)")] = None,
    search: Annotated[str | None, Query(max_length=2000, description="Part of the title, whatever its case")] = None,
    limit: Annotated[float | None, Query(ge=0, description="At most so many, newest created first")] = None,
    cursor: Annotated[
        str | None, Query(pattern=CURSOR_PATTERN, description="From X-Next-Cursor: the page after it, of 100 without a limit")
    ] = None,
) -> Response:
    cursors = PageCursors(request, "cursor", NEXT_CURSOR)
    page = await request.services.sessions.service.page(
        await location_of(request, where),
        directory=directory if scope is None and path is None else None,
        roots_only=bool(roots) and roots != "false",
        updated_since=start,
        search=search,
        limit=page_size(limit, cursor),
        owner=request.principal.visible_owner,
        path=path.rstrip("/") if path else None,
        before=None if cursor is None else cursors.read(cursor),
    )
    return json_bytes(page.body, headers=cursors.header(page.cursor))


@routes.post("", operation_id="session.create", response_model=Session, responses=documented(400))
async def create(
    request: ServerRequest, where: Directory, body: CreateInput | None = None, user_agent: UserAgent = ""
) -> Response:
    """An unknown agent or model is refused, as in a prompt."""
    instance = await instance_of(request, where)
    wanted = body or CreateInput()
    if wanted.agent is not None:
        find_agent(instance.agents, wanted.agent)
    if wanted.model is not None:
        instance.models.find(ModelRef(provider_id=wanted.model.provider_id, model_id=wanted.model.id))
    if wanted.parent_id is not None:
        await require_session(request.services, request.principal, wanted.parent_id)
    session = await request.services.sessions.service.create(instance.location, wanted, request.principal.name)
    request.scope[CREATED] = session.id
    if shares_automatically(instance.config, instance.flags) and session.parent_id is None:
        session = await request.services.sessions.shares.share(instance.location, session.id, public_base(request))
    return wire(session) if user_agent.startswith(_DEMANDS_PATH) else json_bytes(_as_created(session))


def _as_created(session: Session) -> bytes:
    """Without what says nothing yet: clients of OpenCode 1.1 get the keys that they got there."""
    says_nothing = {"cost", "tokens"} if session.path else {"cost", "tokens", "path"}
    return session.model_dump_json(exclude=says_nothing, exclude_none=True).encode()


@routes.get("/status", operation_id="session.status", response_model=dict[str, SessionStatus], responses=documented(400))
async def status(request: ServerRequest, where: Directory) -> Any:
    sessions, owner = request.services.sessions, request.principal.visible_owner
    statuses = await sessions.statuses.of_directory((await location_of(request, where)).directory)
    if owner is not None:
        seen = await sessions.service.owned(statuses, owner)
        statuses = {session_id: value for session_id, value in statuses.items() if session_id in seen}
    return json_bytes(b"{%b}" % b",".join(b'"%b":%b' % (sid.encode(), value.wire_json()) for sid, value in statuses.items()))


@routes.get("/{sessionID}", operation_id="session.get", response_model=Session, responses=documented(400, 404))
async def get(request: ServerRequest, session_id: SessionIdPath) -> Response:
    return json_bytes(await request.services.sessions.store.session_json(session_id))


@routes.patch("/{sessionID}", operation_id="session.update", response_model=Session, responses=documented(400, 404))
async def update(
    request: ServerRequest, where: Directory, session_id: SessionIdPath, body: UpdateInput | None = None
) -> Response:
    location, wanted = await session_location(request, session_id, where), body or UpdateInput()
    service = request.services.sessions.service
    if wanted.owner is not None:
        await _require_giving(request, wanted.owner)
        await service.transfer(location, session_id, wanted.owner)
    return wire(await service.update(location, session_id, wanted))


async def _require_giving(request: ServerRequest, owner: str) -> None:
    """Raises AdminsOnly, and BadRequest for an unknown user."""
    if not request.principal.may_manage:
        raise AdminsOnly
    if owner and not owner.startswith(OIDC_PREFIX) and await request.services.users.users.get(owner) is None:
        raise BadRequest(f"There is no user {owner}: `opensession user list` names them", ["owner"], owner)


@routes.delete("/{sessionID}", operation_id="session.delete", response_model=bool, responses=documented(400, 404))
async def delete(request: ServerRequest, where: Directory, session_id: SessionIdPath) -> Response:
    """What runs in the session or below it is aborted first; what is prompted meanwhile is deleted too, or gets a 404."""
    await request.services.runs.deletion.delete(await session_location(request, session_id, where), session_id)
    return json_bytes(TRUE)


@routes.get(
    "/{sessionID}/children", operation_id="session.children", response_model=list[Session], responses=documented(400, 404)
)
async def children(request: ServerRequest, session_id: SessionIdPath) -> Response:
    return json_bytes(await request.services.sessions.service.children_json(session_id, request.principal.visible_owner))


@routes.get("/{sessionID}/todo", operation_id="session.todo", response_model=list[Todo], responses=documented(400, 404))
async def todo(request: ServerRequest, session_id: SessionIdPath) -> Response:
    return json_bytes(await request.services.sessions.service.todos_json(session_id))


@routes.get("/{sessionID}/diff", operation_id="session.diff", response_model=list[FileDiff], responses=documented(400, 404))
async def diff(
    request: ServerRequest, session_id: SessionIdPath, message_id: Annotated[MessageID | None, Query(alias="messageID")] = None
) -> Response:
    return json_bytes(await request.services.sessions.service.diff_json(session_id, message_id))


@routes.post("/{sessionID}/fork", operation_id="session.fork", response_model=Session, responses=documented(400, 404, 507))
async def fork(request: ServerRequest, where: Directory, session_id: SessionIdPath, body: ForkInput | None = None) -> Response:
    location = await session_location(request, session_id, where)
    forked = await request.services.sessions.forks.fork(location, session_id, body.message_id if body else None)
    request.scope[CREATED] = forked.id
    return wire(forked)


@routes.post("/{sessionID}/abort", operation_id="session.abort", response_model=bool, responses=documented(400, 404))
async def abort(request: ServerRequest, session_id: SessionIdPath) -> Response:
    """Answers when the session is idle and its record finished; an idle or unknown session is idle already."""
    await request.services.runs.runner.abort(session_id)
    return json_bytes(TRUE)
