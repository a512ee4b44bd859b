"""What all of a turn share: services, directory and session, what the turn has read of it, and factories for messages."""

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from app.context.instruction_pages import InstructionPages
from app.pending.editor_files import EditorFiles
from app.permission.service import Permissions
from app.plugin.runner import HookRunner
from app.question.service import Questions
from app.schema.message import AssistantMessage, AssistantTime, MessagePath, MessageWithParts, UserMessage, UserTime
from app.schema.model import Model
from app.schema.part import ModelRef, Part, TextPart
from app.schema.session import Busy, Retry, Session
from app.session.live import LiveSession
from app.session.rows import message_row, part_row
from app.session.session_tasks import SessionTasks
from app.session.session_tx import SessionTx
from app.session.store import Store
from app.session.summary import Summaries
from app.telemetry.observer import NOBODY, Observer
from app.telemetry.records import TurnRecord
from app.tool.base import SubagentRequest, ToolResult
from app.tool.toolbox import Toolbox
from app.tool.truncation import OutputStore
from app.turn.deadline import Deadline
from app.turn.part_writer import PartWriter
from app.turn.titles import Titles
from app.turn.turn_diffs import TurnDiffs
from app.util import clock, ids
from app.workspace.instance import Instance

if TYPE_CHECKING:
    from app.turn.tool_calls import ToolRun


class Subagents(Protocol):
    async def run(self, call: "ToolRun", request: SubagentRequest) -> ToolResult:
        """Runs a task with another agent in a child session, and reports its progress on the call's part."""
        ...


@dataclass(frozen=True)
class TurnServices:
    store: Store
    summaries: Summaries
    titles: Titles
    tasks: SessionTasks
    permissions: Permissions
    questions: Questions
    editor_files: EditorFiles
    toolbox: Toolbox
    outputs: OutputStore
    instruction_pages: InstructionPages
    observer: Observer = NOBODY


@dataclass
class TurnContext:
    """`joined` is set when a prompt has come since the turn has last read the conversation. `session`, `history`: as it has."""

    services: TurnServices
    subagents: Subagents
    instance: Instance
    live: LiveSession
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    record: TurnRecord = field(default_factory=TurnRecord)
    deadline: Deadline = field(default_factory=Deadline)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """When its answer is stored."""
    session: Session = field(init=False)
    history: Sequence[MessageWithParts] = ()
    title: asyncio.Task[None] | None = None
    has_overflowed: bool = False
    """The provider has rejected the conversation as too long."""
    fruitless_compactions: int = 0
    """In a row."""
    diffs: TurnDiffs = field(init=False)

    def __post_init__(self) -> None:
        self.diffs = TurnDiffs(self.services.summaries, self.services.tasks, self.instance, self.session_id)

    @property
    def session_id(self) -> str:
        return self.live.id

    @property
    def store(self) -> Store:
        return self.services.store

    @property
    def directory(self) -> str:
        return self.instance.location.directory

    @property
    def hooks(self) -> HookRunner:
        return self.instance.extensions.hooks

    async def read(self) -> None:
        """The conversation as it is now."""
        self.joined.clear()
        self.session, self.history, self.diffs.basis = await self.store.conversation(self.session_id)

    def model(self, ref: ModelRef) -> Model:
        """Raises ProviderModelNotFoundError."""
        return self.instance.models.find(ref)

    def set_status(self, status: Busy | Retry) -> None:
        self.live.set_status(self.directory, status)

    def is_first_step(self) -> bool:
        """Whether the session has no diff yet, nor steps that it could be made of."""
        return self.session.summary is None and all(isinstance(message.info, UserMessage) for message in self.history)

    def start_title(self) -> None:
        """Starts the title once a turn, after the answer has begun, so that it does not delay the answer."""
        if self.title is None:
            self.title = self.services.titles.start(self.instance, self.session, self.history, self.answered)

    # Messages.

    def writer(self, message: AssistantMessage) -> PartWriter:
        return PartWriter(self.store, self.directory, message)

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
