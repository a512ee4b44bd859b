"""Requests to a session other than prompts: commands, shell, summaries, reverts."""

from fastapi.responses import Response

from app.api.deps import TRUE, Directory, SessionIdPath, UserAgent, documented, json_bytes, session_instance, wire
from app.api.json_route import ServerRequest, router
from app.api.opencode_programs import behind_its_events
from app.schema.message import CommandInput, InitInput, MessageWithParts, ShellInput, SummarizeInput
from app.schema.session import RevertInput, Session

routes = router(prefix="/session/{sessionID}", tags=["session"])


@routes.post("/command", operation_id="session.command", response_model=MessageWithParts, responses=documented(400, 404, 409))
async def command(
    request: ServerRequest, where: Directory, session_id: SessionIdPath, body: CommandInput, user_agent: UserAgent = ""
) -> Response:
    instance = await session_instance(request, session_id, where)
    return json_bytes(await behind_its_events(user_agent, request.services.runs.actions.command(instance, session_id, body)))


@routes.post("/shell", operation_id="session.shell", response_model=MessageWithParts, responses=documented(400, 404, 409))
async def shell(request: ServerRequest, where: Directory, session_id: SessionIdPath, body: ShellInput) -> Response:
    instance = await session_instance(request, session_id, where)
    return wire(await request.services.runs.actions.shell(instance, session_id, body))


@routes.post("/init", operation_id="session.init", response_model=bool, responses=documented(400, 404))
async def init(request: ServerRequest, where: Directory, session_id: SessionIdPath, body: InitInput) -> Response:
    await request.services.runs.actions.init(await session_instance(request, session_id, where), session_id, body)
    return json_bytes(TRUE)


@routes.post("/summarize", operation_id="session.summarize", response_model=bool, responses=documented(400, 404, 409))
async def summarize(request: ServerRequest, where: Directory, session_id: SessionIdPath, body: SummarizeInput) -> Response:
    await request.services.runs.actions.summarize(await session_instance(request, session_id, where), session_id, body)
    return json_bytes(TRUE)


@routes.post("/revert", operation_id="session.revert", response_model=Session, responses=documented(400, 404, 409))
async def revert(request: ServerRequest, where: Directory, session_id: SessionIdPath, body: RevertInput) -> Response:
    """With `dryRun` nothing is touched: `revert.diff` shows what would become of the files."""
    return wire(await request.services.runs.actions.revert(await session_instance(request, session_id, where), session_id, body))


@routes.post("/unrevert", operation_id="session.unrevert", response_model=Session, responses=documented(400, 404, 409))
async def unrevert(request: ServerRequest, where: Directory, session_id: SessionIdPath) -> Response:
    return wire(await request.services.runs.actions.unrevert(await session_instance(request, session_id, where), session_id))
