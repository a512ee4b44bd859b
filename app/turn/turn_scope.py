"""What the parts of a turn share: services, directory and session, and factories for messages and steps."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from app.context.instruction_pages import InstructionPages
from app.provider.base import ModelRequest
from app.schema.agent import Agent
from app.schema.message import AssistantMessage, AssistantTime, MessagePath, UserMessage, UserTime
from app.schema.model import Model
from app.schema.part import ModelRef, Part, TextPart, ToolPart
from app.schema.session import Busy, Retry, Session
from app.session.rows import message_row, part_row
from app.session.session_tasks import SessionTasks
from app.session.session_tx import SessionTx
from app.session.status import Statuses
from app.session.store import Store
from app.session.summary import Summaries
from app.telemetry.observer import NOBODY, Observer
from app.telemetry.records import TurnRecord
from app.tool.base import Tool, ToolContext, ToolResult
from app.tool.toolbox import Toolbox
from app.tool.truncation import OutputStore
from app.turn.call_host import Caller, CallHost, HostServices, Subagents
from app.turn.deadline import Deadline
from app.turn.part_writer import PartWriter
from app.turn.step import OnClose, Step, StepOutcome, StepTools, ignore_close
from app.turn.titles import Titles
from app.turn.tool_calls import Bounds, ToolCalls
from app.util import clock, ids
from app.workspace.instance import Instance


@dataclass(frozen=True)
class TurnServices:
    store: Store
    statuses: Statuses
    summaries: Summaries
    titles: Titles
    tasks: SessionTasks
    host: HostServices
    toolbox: Toolbox
    outputs: OutputStore
    instruction_pages: InstructionPages
    observer: Observer = NOBODY


@dataclass(frozen=True, slots=True)
class OutputBounds:
    """Truncates a tool's output for the model; the whole output is kept in a file."""

    outputs: OutputStore
    may_delegate: bool

    async def bound(self, result: ToolResult) -> ToolResult:
        if "truncated" in result.metadata:
            return result
        bounded = await self.outputs.bound(result.output, may_delegate=self.may_delegate)
        metadata = {**result.metadata, "truncated": bounded.truncated}
        if bounded.output_path:
            metadata["outputPath"] = str(bounded.output_path)
        return replace(result, output=bounded.text, metadata=metadata)


@dataclass(frozen=True, slots=True)
class CallContexts:
    """What each call of a step is told of its surroundings."""

    services: HostServices
    caller: Caller
    model: Model
    bypass_agent_check: bool

    def of(self, calls: ToolCalls, part: ToolPart) -> ToolContext:
        caller = self.caller
        return ToolContext(
            session_id=part.session_id,
            message_id=part.message_id,
            call_id=part.call_id,
            agent=caller.agent,
            model=self.model,
            sandbox_workspace=caller.instance.sandbox_workspace,
            host=CallHost(self.services, caller, calls, part),
            bypass_agent_check=self.bypass_agent_check,
        )


@dataclass(frozen=True)
class TurnScope:
    services: TurnServices
    subagents: Subagents
    instance: Instance
    session_id: str
    record: TurnRecord = field(default_factory=TurnRecord)
    deadline: Deadline = field(default_factory=Deadline)

    @property
    def store(self) -> Store:
        return self.services.store

    @property
    def directory(self) -> str:
        return self.instance.location.directory

    async def session(self) -> Session:
        return await self.store.session(self.session_id)

    def model(self, ref: ModelRef) -> Model:
        """Raises ProviderModelNotFoundError."""
        return self.instance.models.find(ref)

    def set_status(self, status: Busy | Retry) -> None:
        self.services.statuses.set(self.session_id, self.directory, status)

    async def update_diffs(self, prompt_id: str) -> int:
        """Updates the diffs of the session and the prompt. Returns the bytes announced."""
        return await self.services.summaries.update(self.instance.location, self.instance.trees, self.session_id, prompt_id)

    async def put_empty_diff(self, tree: str | None) -> str:
        """The session's first diff. Returns its basis."""
        return await self.services.summaries.put_empty(self.instance.location, self.session_id, tree)

    def write_message(
        self, message: AssistantMessage | UserMessage, parts: Sequence[Part] = (), *, waits: bool = False
    ) -> Awaitable[None]:
        """Writes a message and its first parts in one commit. Await the result if later reads must see it. `waits`: for an
        answer."""
        info, part_rows = message_row(message, waits=waits), list(map(part_row, parts))

        def write(tx: SessionTx) -> None:
            tx.put_message(info)
            for part in part_rows:
                tx.put_part(part)

        return self.store.post(self.session_id, self.directory, write)

    def new_assistant(self, user: UserMessage, agent: str, model: ModelRef, *, summary: bool | None = None) -> AssistantMessage:
        location = self.instance.location
        return AssistantMessage(
            id=ids.ascending("message"),
            session_id=self.session_id,
            time=AssistantTime(created=clock.now_ms()),
            parent_id=user.id,
            model_id=model.model_id,
            provider_id=model.provider_id,
            mode=agent,
            agent=agent,
            path=MessagePath(cwd=location.directory, root=location.worktree),
            summary=summary,
            variant=user.variant,
        )

    def new_user(self, agent: str, model: ModelRef, *, continues: UserMessage | None = None) -> UserMessage:
        """A user message made by the server. It asks for what the prompt that it `continues` asks for."""
        return UserMessage(
            id=ids.ascending("message"),
            session_id=self.session_id,
            time=UserTime(created=clock.now_ms()),
            agent=agent,
            model=model,
            deadline=continues.deadline if continues else None,
            format=continues.format if continues else None,
        )

    def synthetic_text(self, message: UserMessage, text: str) -> TextPart:
        return TextPart(id=ids.ascending("part"), session_id=self.session_id, message_id=message.id, text=text, synthetic=True)

    def step(
        self,
        message: AssistantMessage,
        model: Model,
        on_answer: Callable[[], object] = lambda: None,
        on_close: OnClose = ignore_close,
    ) -> Step:
        instance = self.instance
        hooks, cancelled = instance.extensions.hooks, self.deadline.error
        around = StepTools(
            self.store, self.directory, instance.trees, hooks, self.set_status, cancelled, on_answer, on_close, self.record
        )
        return Step(around, message, model, instance.models.providers.provider_for(model))

    def calls(
        self,
        writer: PartWriter,
        tools: Mapping[str, Tool[Any]],
        session: Session,
        agent: Agent,
        model: Model,
        earlier: Sequence[ToolPart] = (),
        *,
        seen_instructions: set[str] | None = None,
        bypass_agent_check: bool = False,
    ) -> ToolCalls:
        caller = Caller(self.instance, session, agent, writer, self.subagents, seen_instructions or set())
        contexts = CallContexts(self.services.host, caller, model, bypass_agent_check)
        outputs = self.services.outputs.within(self.instance.config.tool_output)
        bounds: Bounds = OutputBounds(outputs, may_delegate="task" in tools)
        stops = not self.instance.config.experimental.continue_loop_on_deny
        plugin_hooks = self.instance.extensions.hooks
        return ToolCalls(
            tools,
            writer,
            contexts.of,
            bounds,
            earlier,
            plugin_hooks=plugin_hooks,
            observer=self.services.observer,
            stops_on_rejection=stops,
        )

    async def ask_without_tools(self, step: Step, model: Model, agent: Agent, request: ModelRequest) -> StepOutcome:
        async def ready() -> ModelRequest:
            return request

        return await step.run(self.calls(step.writer, {}, await self.session(), agent, model), ready)
