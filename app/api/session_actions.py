"""Requests to a session other than prompts: commands, shell, summaries, reverts."""

from fastapi.responses import Response

from app.api.deps import AppServices, SessionIdPath, SessionInstance, UserAgent, json_bytes
from app.api.documented import documented
from app.api.json_route import router
from app.api.opencode_programs import behind_its_events
from app.api.roles import PROMPTS, WRITES
from app.schema.message import CommandInput, InitInput, MessageWithParts, ShellInput, SummarizeInput
from app.schema.session import RevertInput, Session

routes = router("/session/{sessionID}", 400, 404, tags=["session"])


@routes.post("/command", response_model=MessageWithParts, responses=documented(409), dependencies=PROMPTS)
async def command(
    app: AppServices, instance: SessionInstance, session_id: SessionIdPath, body: CommandInput, user_agent: UserAgent = ""
) -> Response:
    return json_bytes(await behind_its_events(user_agent, app.actions.command(instance, session_id, body)))


@routes.post("/shell", responses=documented(409), dependencies=PROMPTS)
async def shell(app: AppServices, instance: SessionInstance, session_id: SessionIdPath, body: ShellInput) -> MessageWithParts:
    return await app.actions.shell(instance, session_id, body)


@routes.post("/init", dependencies=PROMPTS)
async def init(app: AppServices, instance: SessionInstance, session_id: SessionIdPath, body: InitInput) -> bool:
    await app.actions.init(instance, session_id, body)
    return True


@routes.post("/summarize", responses=documented(409), dependencies=PROMPTS)
async def summarize(app: AppServices, instance: SessionInstance, session_id: SessionIdPath, body: SummarizeInput) -> bool:
    await app.actions.summarize(instance, session_id, body)
    return True


@routes.post("/revert", responses=documented(409), dependencies=WRITES)
async def revert(app: AppServices, instance: SessionInstance, session_id: SessionIdPath, body: RevertInput) -> Session:
    """With `dryRun` nothing is touched: `revert.diff` shows what would become of the files."""
    return await app.actions.revert(instance, session_id, body)


@routes.post("/unrevert", responses=documented(409), dependencies=WRITES)
async def unrevert(app: AppServices, instance: SessionInstance, session_id: SessionIdPath) -> Session:
    return await app.actions.unrevert(instance, session_id)
