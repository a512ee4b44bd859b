"""What clients ask of a session besides a prompt: commands, shell, summaries, reverts, deletion. A busy session refuses most with
a 409."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from app.project.location import Location
from app.project.registry import Projects
from app.record.repositories import message_rows
from app.schema.errors import Conflict, ServiceError, SessionBusy, SessionNotFound, unknown
from app.schema.event import CommandRun, ErrorOfSession, EventCommandExecuted, EventSessionError
from app.schema.message import (
    AssistantMessage,
    CommandInput,
    InitInput,
    MessageWithParts,
    PromptInput,
    ShellInput,
    SummarizeInput,
)
from app.schema.model import Agent
from app.schema.part import ModelRef, ToolPart
from app.schema.session import Busy, RevertInput, Session
from app.sessions.live import LiveSessions, SessionWork, WorkKind
from app.sessions.revert import Reverts
from app.sessions.service import SessionService
from app.sessions.store import Store
from app.sessions.summary import SessionTasks
from app.tools.base import ToolContext, ToolError, ToolHost, ToolPermission, ToolResult
from app.tools.builtin.bash import BashParameters, BashTool
from app.turn import compaction, hooks
from app.turn.context.history import synthetic_text
from app.turn.context.window import COMPACTION_AGENT
from app.turn.intake.intake import Intake, PreparedPrompt, command_hash
from app.turn.intake.prompts import AcceptedPrompt, Prompts
from app.turn.part_writer import PartWriter
from app.turn.tool_calls import require_readable
from app.turn.turn_context import TurnContext
from app.util import clock, ids
from app.workspace.agents import prompt_text
from app.workspace.commands import Commands
from app.workspace.instance import Instance

INIT = "init"


@dataclass(frozen=True, kw_only=True)
class SessionActions:
    store: Store
    prompts: Prompts
    intake: Intake
    live: LiveSessions
    reverts: Reverts
    commands: Commands
    projects: Projects
    sessions: SessionService
    tasks: SessionTasks

    async def command(self, instance: Instance, session_id: str, wanted: CommandInput) -> bytes:
        """The JSON of the message that answers. A command that is sent again with its message id is not run again, and has the
        first one's answer. Raises Conflict for another command with that id."""
        async with self._expanding(session_id, wanted.message_id):
            accepted = await self._accept_command(instance, session_id, wanted)
        answer = await self.prompts.answer(session_id, accepted)
        if not accepted.known:
            await self._announce_command(instance, session_id, wanted, MessageWithParts.model_validate_json(answer).info.id)
        return answer

    def _expanding(self, session_id: str, message_id: str | None) -> AbstractAsyncContextManager[object]:
        """A command that is sent again while its shell lines run waits for them."""
        return self.store.lock(f"{session_id} {message_id}") if message_id else nullcontext()

    async def _accept_command(self, instance: Instance, session_id: str, wanted: CommandInput) -> AcceptedPrompt:
        content = command_hash(wanted)
        prompted = await self.store.session_to_prompt(session_id)
        if await self.intake.is_known(session_id, wanted.message_id, content):
            known = PreparedPrompt(PromptInput(message_id=wanted.message_id, parts=[]), content, None)
            return await self.prompts.accept_prepared(instance, session_id, known)
        try:
            prompt = await self.commands.prompt(instance, wanted, prompted.last_model)
        except ServiceError as error:  # OpenCode's terminal client shows the event, and not the answer
            refused = EventSessionError(properties=ErrorOfSession(session_id=session_id, error=unknown(error.message)))
            self.store.post(session_id, instance.location.directory, lambda tx: tx.announce(refused))
            raise
        prompt = await hooks.command_parts(instance.extensions.hooks, session_id, wanted, prompt)
        return await self.prompts.accept(instance, await self.store.session_to_prompt(session_id), prompt, content=content)

    async def init(self, instance: Instance, session_id: str, wanted: InitInput) -> None:
        """Writes the project's AGENTS.md, by the command of that name."""
        model = f"{wanted.provider_id}/{wanted.model_id}"
        await self.command(
            instance, session_id, CommandInput(command=INIT, arguments="", message_id=wanted.message_id, model=model)
        )

    async def shell(self, instance: Instance, session_id: str, wanted: ShellInput) -> MessageWithParts:
        """Raises SessionBusy, Aborted, BadRequest for an unknown agent, Conflict for a message id that is used already."""
        turns, directory = self.prompts.turns, instance.location.directory
        ctx, agent = turns.context(instance, self.live.get(session_id)), instance.agent(wanted.agent)

        async def run() -> MessageWithParts:
            await self._require_new(session_id, wanted.message_id)
            await self.reverts.clean_up(instance.location, session_id)
            last_model = (await self.store.session_to_prompt(session_id)).last_model
            return await _run_shell(ctx, wanted, agent, last_model)

        return await turns.run_exclusively(session_id, directory, WorkKind.SHELL, run, announced=True)

    async def summarize(self, instance: Instance, session_id: str, wanted: SummarizeInput) -> None:
        """Summarises the conversation; returns when that is done. Raises SessionBusy, ProviderModelNotFoundError, and BadRequest
        if the configuration has no agent for it, before anything is stored. No prompt comes between the request for the summary
        and its turn."""
        ctx = self.prompts.turns.context(instance, self.live.get(session_id))
        model = ModelRef(provider_id=wanted.provider_id, model_id=wanted.model_id)
        ctx.instance.models.find(model)
        instance.agent(COMPACTION_AGENT)
        summary = SessionWork(kind=WorkKind.SUMMARY, directory=instance.location.directory)
        async with self.live.get(session_id).exclusive(summary), self._holding_lease(session_id):
            await self.reverts.clean_up(instance.location, session_id)
            last = (await self.store.session_to_prompt(session_id)).last_prompt
            agent = last.agent if last else instance.agent().name
            await compaction.request(ctx, agent, model, auto=wanted.auto)
            run = self.prompts.turns.start(session_id, instance)
        await run.ended.wait()
        run.require_not_fenced()

    @asynccontextmanager
    async def _holding_lease(self, session_id: str) -> AsyncIterator[None]:
        """Keeps other servers out until the run that is started takes the lease for itself. Raises SessionBusy."""
        self.store.hold(await self.live.leases.acquire(session_id))
        try:
            yield
        except BaseException:
            self.store.release(session_id)
            self.live.leases.release(session_id)
            raise

    async def revert(self, instance: Instance, session_id: str, wanted: RevertInput) -> Session:
        """Raises SessionBusy, Aborted, SnapshotFailed."""
        await self.tasks.patches(session_id)
        revert = partial(self.reverts.revert, instance.location, instance.snapshots, session_id, wanted)
        return await self.prompts.turns.run_exclusively(session_id, instance.location.directory, WorkKind.REVERT, revert)

    async def unrevert(self, instance: Instance, session_id: str) -> Session:
        """Raises SessionBusy, Aborted, SnapshotFailed."""
        unrevert = partial(self.reverts.unrevert, instance.location, instance.snapshots, session_id)
        return await self.prompts.turns.run_exclusively(session_id, instance.location.directory, WorkKind.REVERT, unrevert)

    async def commit_revert(self, instance: Instance, session_id: str) -> None:
        """Removes the reverted messages now, not with the next prompt. Raises SessionBusy, Aborted."""
        clean_up = partial(self.reverts.clean_up, instance.location, session_id)
        await self.prompts.turns.run_exclusively(session_id, instance.location.directory, WorkKind.REVERT, clean_up)

    async def compact(self, instance: Instance, session_id: str) -> None:
        """`summarize` with the model of the session."""
        model = (await self.store.session_to_prompt(session_id)).last_model or instance.default_model()
        await self.summarize(instance, session_id, SummarizeInput(provider_id=model.provider_id, model_id=model.model_id))

    async def delete(self, location: Location, session_id: str) -> None:
        """Deletes the session and its descendants, also those that are created meanwhile. Raises NotFound."""
        async with AsyncExitStack() as stopped:
            held: dict[str, None] = {}
            while new := [found.id for found in await self.store.session_tree(session_id) if found.id not in held]:
                held |= dict.fromkeys(new)
                for each in reversed(new):
                    # Another request may delete a descendant meanwhile, but what is asked for must be there.
                    with nullcontext() if each == session_id else suppress(SessionNotFound):
                        await stopped.enter_async_context(self._stopped(each, location.directory))
            await self.sessions.remove(location.directory, session_id)
            for deleted in held:
                self.live.get(deleted).discard()

    @asynccontextmanager
    async def _stopped(self, session_id: str, directory: str) -> AsyncIterator[None]:
        """Aborts the session's works and lets none begin. Parents come before their children, because the turn of a parent that
        is being aborted waits for those."""
        live, deletion = self.live.get(session_id), SessionWork(kind=WorkKind.DELETE, directory=directory)
        live.begin(deletion)
        try:
            await self.live.abort(session_id)
            await live.first(deletion)  # before the lock: another deletion that was begun first needs it
            async with live.messages:
                await self.tasks.cancel(session_id)
                await self._acquire_aborting(session_id)
                try:
                    yield
                finally:
                    self.store.release(session_id)  # held for the turn of a summary, which waits behind this
                    self.live.leases.release(session_id)
        finally:
            live.end(deletion)

    async def _acquire_aborting(self, session_id: str) -> None:
        """Acquires the lease. Aborts what another server begins meanwhile, such as the turn of a prompt in its queue."""
        while True:
            try:
                await self.live.leases.acquire(session_id)
                return
            except SessionBusy:
                await self.live.leases.request_abort(session_id)

    async def _require_new(self, session_id: str, message_id: str | None) -> None:
        row = await self.store.query(message_rows.input_hash, session_id, message_id) if message_id else None
        if row is not None:
            raise Conflict(
                f"Message {message_id} exists already. A command is not run a second time: use a new id for a new one."
            )

    async def _announce_command(self, instance: Instance, session_id: str, wanted: CommandInput, answer_id: str) -> None:
        if wanted.command == INIT:
            await self.projects.initialized(instance.location.project_id)
        ran = CommandRun(session_id=session_id, name=wanted.command, arguments=wanted.arguments, message_id=answer_id)
        event = EventCommandExecuted(properties=ran)
        await self.store.write(session_id, instance.location.directory, lambda tx: tx.announce(event))


MAX_DELAY_MS = 24 * 3600 * 1000
"""A command that the user started runs until it ends or is aborted; but a timer needs some bound."""


class _ShellHost(ToolHost):
    """Shows the command's output. Needs no permission, as the user asked for the command. Others' directories stay closed."""

    def __init__(self, instance: Instance, writer: PartWriter, part: ToolPart) -> None:
        self._instance = instance
        self._writer = writer
        self._part = part
        self.output = ""

    async def require_permission(self, needed: ToolPermission) -> None:
        if needed.permission == "external_directory":
            require_readable(self._instance, needed)

    async def update(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
        self.output = (metadata or {}).get("output", "")
        self._writer.tool_progress(self._part, title, metadata)


async def _run_shell(ctx: TurnContext, wanted: ShellInput, agent: Agent, last_model: ModelRef | None) -> MessageWithParts:
    """The answer with the finished call. An abort ends the command, whose output so far is the result.

    The command needs no model: that of the session may be gone, but one that is named must be there. Raises
    ProviderModelNotFoundError before anything is stored."""
    if wanted.model:
        ctx.instance.models.find(wanted.model)
    model = wanted.model or agent.model or last_model or ctx.instance.default_model()
    user = ctx.new_user(agent.name, model)
    user.id = wanted.message_id or user.id
    ctx.live.set_status(ctx.directory, Busy())
    await ctx.write_message(user, [synthetic_text(user, prompt_text("shell-notice"))])
    ctx.diffs.request(user.id)  # messages that were reverted may be gone
    message = ctx.new_assistant(user, agent.name, model)
    writer = PartWriter(ctx.store, ctx.directory, message)
    writer.enqueue_message()
    part = writer.tool_running(ids.call_id(), BashTool.id, {"command": wanted.command})
    try:
        await writer.stored()
        await _run_command(ctx, agent, writer, part, wanted.command)
    finally:
        await asyncio.shield(_finish_shell(writer, message))
    return MessageWithParts.model_construct(info=message, parts=[part])


async def _run_command(ctx: TurnContext, agent: Agent, writer: PartWriter, part: ToolPart, command: str) -> None:
    host = _ShellHost(ctx.instance, writer, part)
    context = ToolContext(
        session_id=ctx.session_id,
        message_id=part.message_id,
        call_id=part.call_id,
        agent=agent,
        sandbox_workspace=ctx.instance.sandbox_workspace,
        host=host,
    )
    arguments = BashParameters(command=command, description="", timeout=MAX_DELAY_MS)
    try:
        result = await ctx.services.toolbox.bash.execute(arguments, context)
        output, shown = result.output, result.metadata["output"]
    except asyncio.CancelledError:
        output = shown = host.output  # the client that asked for the command gets its output so far, whoever aborted it
    except ToolError as error:
        writer.tool_failed(part, f"Error: {error}")
        return
    writer.tool_completed(part, ToolResult("", output, {"output": shown, "description": ""}))


async def _finish_shell(writer: PartWriter, message: AssistantMessage) -> None:
    message.time.completed = clock.now_ms()
    writer.finish_open_parts()
    writer.enqueue_message()
    await writer.stored()
