"""Sessions: create, list, read, rename, delete, fork, abort; and in one session: commands, shell lines, summaries and reverts."""

import asyncio
import os
from typing import Annotated, Literal

from fastapi import Query, Request
from fastapi.responses import Response

from app.api.audit import CREATED
from app.api.deps import (
    CURSOR_PATTERN,
    NEXT_CURSOR,
    AppServices,
    CurrentInstance,
    Here,
    PageCursors,
    SessionIdPath,
    SessionInstance,
    SessionPlace,
    StoredPlace,
    UserAgent,
    Who,
    json_bytes,
    page_size,
    public_base,
)
from app.api.errors import documented
from app.api.event import behind_its_events
from app.api.json_route import router
from app.api.roles import PROMPTS, READS, WRITES, WRITES_WHILE_STOPPING, AdminsOnly, require_session
from app.record.repositories import session_rows
from app.record.repositories.session_rows import SessionFilter
from app.schema.base import MessageID
from app.schema.errors import BadRequest
from app.schema.message import CommandInput, InitInput, MessageWithParts, ShellInput, SummarizeInput
from app.schema.part import ModelRef
from app.schema.session import (
    CreateInput,
    FileDiff,
    ForkInput,
    GlobalSession,
    RevertInput,
    Session,
    SessionStatus,
    Todo,
    UpdateInput,
)
from app.server import Server
from app.sessions.share import shares_automatically
from app.users.oidc import PREFIX as OIDC_PREFIX
from app.users.principal import Principal
from app.util.project_files import resolved

routes = router("/session", 400, tags=["session"])
actions = router("/session/{sessionID}", 400, 404, tags=["session"])
everywhere = router("/experimental", 400, tags=["session"])

_DEMANDS_PATH = "opencode-client-python/"
"""How a user agent begins: a client of OpenCode 1.18 that takes no session without a path, though the path is optional."""


@routes.get("", operation_id="session.list", response_model=list[Session], dependencies=READS)
async def list_sessions(
    app: AppServices,
    who: Who,
    here: Here,
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
    cursors = PageCursors(app, who, "cursor", NEXT_CURSOR)
    wanted = SessionFilter(
        here.project_id,
        directories=[here.directory] if directory is not None and scope is None and path is None else None,
        path=path.rstrip("/") if path else None,
        roots_only=bool(roots) and roots != "false",
        owner=who.visible_owner,
        search=search,
        updated_since=start,
    )
    before = None if cursor is None else cursors.read(cursor)
    page = await app.store.sessions_page(wanted, page_size(limit, cursor) or None, before)
    return json_bytes(page.body, headers=cursors.header(page.cursor))


@routes.post("", response_model=Session, responses=documented(413), dependencies=WRITES)
async def create(
    request: Request,
    app: AppServices,
    who: Who,
    instance: CurrentInstance,
    body: CreateInput | None = None,
    user_agent: UserAgent = "",
) -> Response:
    """An unknown agent or model is refused, as in a prompt."""
    wanted = body or CreateInput()
    if wanted.agent is not None:
        instance.agent(wanted.agent)
    if wanted.model is not None:
        instance.models.find(ModelRef(provider_id=wanted.model.provider_id, model_id=wanted.model.id))
    if wanted.parent_id is not None:
        await require_session(app, who, wanted.parent_id)
    session = await app.sessions.create(instance.location, wanted, who.name)
    request.scope[CREATED] = session.id
    if shares_automatically(instance.config, instance.flags) and session.parent_id is None:
        session = await app.shares.share(instance.location, session.id, public_base(request))
    return json_bytes(session.wire_json() if user_agent.startswith(_DEMANDS_PATH) else _as_created(session))


def _as_created(session: Session) -> bytes:
    """Without keys that say nothing yet: clients of OpenCode 1.1 get the keys that they got from it."""
    says_nothing = {"cost", "tokens"} if session.path else {"cost", "tokens", "path"}
    return session.model_dump_json(exclude=says_nothing, exclude_none=True).encode()


@routes.get("/status", dependencies=READS)
async def status(app: AppServices, who: Who, here: Here) -> dict[str, SessionStatus]:
    statuses = await app.live.statuses(here.directory)
    if who.visible_owner is not None:
        seen = await app.sessions.owned(statuses, who.visible_owner)
        statuses = {session_id: value for session_id, value in statuses.items() if session_id in seen}
    return dict(statuses)


@routes.get("/{sessionID}", response_model=Session, responses=documented(404), dependencies=READS)
async def get(app: AppServices, session_id: SessionIdPath) -> Response:
    return json_bytes(await app.store.session_json(session_id))


@routes.patch("/{sessionID}", responses=documented(404, 413), dependencies=WRITES)
async def update(
    app: AppServices, who: Who, here: StoredPlace, session_id: SessionIdPath, body: UpdateInput | None = None
) -> Session:
    wanted, service = body or UpdateInput(), app.sessions
    if wanted.owner is not None:
        await _require_giving(app, who, wanted.owner)
        await service.transfer(here, session_id, wanted.owner)
    return await service.update(here, session_id, wanted)


async def _require_giving(app: Server, who: Principal, owner: str) -> None:
    """Raises AdminsOnly, and BadRequest for an unknown user."""
    if not who.may_manage:
        raise AdminsOnly
    if owner and not owner.startswith(OIDC_PREFIX) and await app.users.get(owner) is None:
        raise BadRequest(f"There is no user {owner}: `opensession user list` names them", ["owner"], owner)


@routes.delete("/{sessionID}", responses=documented(404), dependencies=WRITES)
async def delete(app: AppServices, here: StoredPlace, session_id: SessionIdPath) -> bool:
    """What runs in the session or its descendants is aborted first. What is prompted meanwhile is deleted too, or gets a 404."""
    await app.actions.delete(here, session_id)
    return True


@routes.get("/{sessionID}/children", response_model=list[Session], responses=documented(404), dependencies=READS)
async def children(app: AppServices, who: Who, session_id: SessionIdPath) -> Response:
    session = await app.store.session(session_id)
    wanted = SessionFilter(session.project_id, parent_id=session_id, owner=who.visible_owner)
    return json_bytes((await app.store.sessions_page(wanted)).body)


@routes.get("/{sessionID}/todo", response_model=list[Todo], responses=documented(404), dependencies=READS)
async def todo(app: AppServices, session_id: SessionIdPath) -> Response:
    return json_bytes(await app.sessions.todos_json(session_id))


@routes.get("/{sessionID}/diff", response_model=list[FileDiff], responses=documented(404), dependencies=READS)
async def diff(
    app: AppServices, session_id: SessionIdPath, message_id: Annotated[MessageID | None, Query(alias="messageID")] = None
) -> Response:
    return json_bytes(await app.sessions.diff_json(session_id, message_id))


@routes.post("/{sessionID}/fork", responses=documented(404, 507), dependencies=WRITES)
async def fork(
    request: Request, app: AppServices, here: SessionPlace, session_id: SessionIdPath, body: ForkInput | None = None
) -> Session:
    forked = await app.forks.fork(here, session_id, body.message_id if body else None)
    request.scope[CREATED] = forked.id
    return forked


@routes.post("/{sessionID}/abort", responses=documented(404), dependencies=WRITES_WHILE_STOPPING)
async def abort(app: AppServices, session_id: SessionIdPath) -> bool:
    """Answers when the session is idle and its record finished. An idle or unknown session is idle already."""
    await app.live.abort(session_id)
    return True


# What clients ask of a session besides prompts.


@actions.post("/command", response_model=MessageWithParts, responses=documented(409), dependencies=PROMPTS)
async def command(
    app: AppServices, instance: SessionInstance, session_id: SessionIdPath, body: CommandInput, user_agent: UserAgent = ""
) -> Response:
    return json_bytes(await behind_its_events(user_agent, app.actions.command(instance, session_id, body)))


@actions.post("/shell", responses=documented(409), dependencies=PROMPTS)
async def shell(app: AppServices, instance: SessionInstance, session_id: SessionIdPath, body: ShellInput) -> MessageWithParts:
    return await app.actions.shell(instance, session_id, body)


@actions.post("/init", dependencies=PROMPTS)
async def init(app: AppServices, instance: SessionInstance, session_id: SessionIdPath, body: InitInput) -> bool:
    await app.actions.init(instance, session_id, body)
    return True


@actions.post("/summarize", responses=documented(409), dependencies=PROMPTS)
async def summarize(app: AppServices, instance: SessionInstance, session_id: SessionIdPath, body: SummarizeInput) -> bool:
    await app.actions.summarize(instance, session_id, body)
    return True


@actions.post("/revert", responses=documented(409), dependencies=WRITES)
async def revert(app: AppServices, instance: SessionInstance, session_id: SessionIdPath, body: RevertInput) -> Session:
    """With `dryRun` nothing is touched: `revert.diff` shows what would change in the files."""
    return await app.actions.revert(instance, session_id, body)


@actions.post("/unrevert", responses=documented(409), dependencies=WRITES)
async def unrevert(app: AppServices, instance: SessionInstance, session_id: SessionIdPath) -> Session:
    return await app.actions.unrevert(instance, session_id)


# Sessions of all directories that a client may work in.


@everywhere.get("/session", operation_id="experimental.session.list", response_model=list[GlobalSession], dependencies=READS)
async def list_all_sessions(
    app: AppServices,
    who: Who,
    directory: Annotated[str | None, Query(description="Only sessions of exactly this directory")] = None,
    roots: Annotated[bool, Query(description="Only sessions without a parent")] = False,
    start: Annotated[float | None, Query(description="Only sessions updated at or after this time (ms)")] = None,
    cursor: Annotated[float | None, Query(description="From X-Next-Cursor: only sessions updated before this time (ms)")] = None,
    search: Annotated[str | None, Query(max_length=2000, description="Part of the title, whatever its case")] = None,
    limit: Annotated[float, Query(ge=0, description="How many, newest updated first; more of one millisecond")] = 100,
    archived: Annotated[bool, Query(description="Archived ones too")] = False,
) -> Response:
    wanted = SessionFilter(
        directories=await _directories(app, who, directory),
        roots_only=roots,
        updated_since=start,
        updated_before=cursor,
        search=search,
        archived=archived,
        owner=who.visible_owner,
    )
    page = await app.sessions.page_of_all(
        wanted, page_size(limit, None) or 100, lambda path: who.may_see_all or app.workspaces.admits(who, path)
    )
    return json_bytes(page.body, headers=None if page.cursor is None else {NEXT_CURSOR: str(page.cursor)})


async def _directories(app: Server, who: Principal, directory: str | None) -> list[str] | None:
    """The directories that the client may work in and wants to see; None for all."""
    stored = session_rows.directories_of_sessions
    if directory is not None and "\0" in directory:
        return []  # no path
    named = None if directory is None else os.path.normpath(directory)  # noqa: ASYNC240  asks no disk
    known = await app.store.query(stored, who.visible_owner) if named is None else [named]
    real = await asyncio.to_thread(lambda: list(map(resolved, known)))
    allowed = [each for each, without_links in zip(known, real, strict=True) if app.workspaces.admits(who, without_links)]
    return None if directory is None and len(allowed) == len(known) else allowed
