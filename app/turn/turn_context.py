"""What the parts of a turn share: services, directory and session, the conversation as last read, and factories for messages."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.events.telemetry.observer import NOBODY, Observer, TurnRecord
from app.permissions.editor_files import EditorFiles
from app.permissions.questions import Questions
from app.permissions.service import Permissions
from app.schema.errors import MessageError
from app.schema.message import AssistantMessage, MessagePath, MessageWithParts, UserMessage, UserTime
from app.schema.part import ModelRef, Part
from app.schema.session import Session
from app.sessions.live import LiveSession
from app.sessions.rows import message_row, part_row
from app.sessions.session_tx import SessionTx
from app.sessions.store import Store
from app.sessions.summary import SessionTasks, Summaries, TurnDiffs
from app.tools.base import TaskParameters, ToolResult
from app.tools.toolbox import Toolbox
from app.tools.truncation import OutputStore
from app.turn.decide import newest
from app.turn.ends import Deadline, new_answer, put_error
from app.turn.titles import Titles
from app.util import clock, ids
from app.workspace.instance import Instance
from app.workspace.instructions import InstructionPages

if TYPE_CHECKING:
    from app.turn.tool_calls import ToolRun


RunSubagent = Callable[["ToolRun", TaskParameters], Awaitable[ToolResult]]
"""Runs a task with another agent in a child session, and reports its progress on the call's part."""


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
    """`joined` is set when a prompt has come since the turn has last read. `session`, `history`: as the turn has last read
    them."""

    services: TurnServices
    run_subagent: RunSubagent
    instance: Instance
    live: LiveSession
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    record: TurnRecord = field(default_factory=TurnRecord)
    deadline: Deadline = field(default_factory=Deadline)
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the session's turns are over and who has prompted is answered."""
    session: Session = field(init=False)
    history: Sequence[MessageWithParts] = ()
    title: asyncio.Task[None] | None = None
    has_overflowed: bool = False
    """The provider has rejected the conversation as too long."""
    fruitless_compactions: int = 0
    """The number of the latest compactions in a row that did not help."""
    diffs: TurnDiffs = field(init=False)

    def __post_init__(self) -> None:
        self.session_id = self.live.id
        self.directory = self.instance.location.directory
        self.store = self.services.store
        self.hooks = self.instance.extensions.hooks
        self.diffs = TurnDiffs(
            self.services.summaries, self.services.tasks, self.instance.location, self.instance.trees, self.session_id
        )

    async def read(self) -> None:
        """Reads the conversation as it is now."""
        self.joined.clear()
        self.session, self.history, self.diffs.basis = await self.store.conversation(self.session_id)

    def is_first_step(self) -> bool:
        """Whether the session has neither a diff nor steps of which one could be made."""
        return self.session.summary is None and all(isinstance(message.info, UserMessage) for message in self.history)

    def start_title(self, answer: AssistantMessage) -> None:
        """Starts the title once a turn, after an answer has begun, so that it does not delay it; a summary starts none."""
        if self.title is None and not answer.summary:
            self.title = self.services.titles.start(self.instance, self.session, self.history, self.answered)

    async def give_up(self, error: MessageError) -> None:
        """Stores why the turn ends, with the last answer or in a new one; nothing in a session without a prompt."""
        self.record.failure = error
        user, message = newest(self.history, UserMessage), newest(self.history, AssistantMessage)
        if user is None:
            return
        if message is None or message.parent_id != user.id:
            message = self.new_assistant(user, user.agent, user.model)
        await put_error(self.store, message, error)

    # Messages.

    def write_message(
        self,
        message: AssistantMessage | UserMessage,
        parts: Sequence[Part] = (),
        *,
        waits: bool = False,
        instead_of: AssistantMessage | None = None,
    ) -> Awaitable[None]:
        """Writes a message and its first parts in one commit, which removes `instead_of`. Await the result if later reads must
        see it. `waits`: the message is a prompt that needs an answer."""
        info, part_rows = message_row(message, waits=waits), list(map(part_row, parts))

        def write(tx: SessionTx) -> None:
            if instead_of is not None:
                tx.remove_message(instead_of.id)
            tx.put_message(info)
            tx.put_parts(*part_rows)

        return self.store.post(self.session_id, self.directory, write)

    def new_assistant(self, user: UserMessage, agent: str, model: ModelRef, *, summary: bool | None = None) -> AssistantMessage:
        path = MessagePath(cwd=self.directory, root=self.instance.location.worktree)
        return new_answer(user, agent, model, path, summary=summary, variant=user.variant)

    def new_user(self, agent: str, model: ModelRef, *, continues: UserMessage | None = None) -> UserMessage:
        """A user message made by the server, with the deadline and format of the prompt that it `continues`."""
        return UserMessage(
            id=ids.ascending("message"),
            session_id=self.session_id,
            time=UserTime(created=clock.now_ms()),
            agent=agent,
            model=model,
            deadline=continues.deadline if continues else None,
            format=continues.format if continues else None,
        )
