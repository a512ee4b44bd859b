"""A session in the second API's words: `SessionMessage`, closed below, and the events of `session.next.*`.

A message is one entry in the session: a text of the user or the assistant, a command line, a summary. The parts of the first API
are its `content`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool

from app.schema.base import Int64, MessageID, Metadata, SessionID, Wire
from app.schema.message import AssistantTime, UserTime
from app.schema.part import Tokens
from app.schema.session import RevertState, SessionModel


def described_types(events: Mapping[str, str]) -> str:
    """A list for the API's description, of types whose events share one description."""
    return "\n".join(f"- `{name}`: {text}" for name, text in events.items())


class LocationRef(Wire):
    directory: str


class SessionV2Time(Wire):
    created: int
    updated: int
    archived: float | None = None


class SessionV2Info(Wire):
    """`subpath`: the directory, relative to the top of its checkout."""

    id: SessionID
    parent_id: SessionID | None = None
    project_id: str
    agent: str | None = None
    model: SessionModel | None = None
    cost: float = 0
    tokens: Tokens = Field(default_factory=Tokens)
    time: SessionV2Time
    title: str
    location: LocationRef
    subpath: str | None = None
    revert: RevertState | None = None


class PromptSource(Wire):
    """Where the prompt's text names the file or agent."""

    start: Int64
    end: Int64
    text: str


class PromptFile(Wire):
    """`mime` is found out if the client does not give it."""

    uri: str
    mime: str | None = None
    name: str | None = None
    description: str | None = None
    source: PromptSource | None = None


class PromptFileAttachment(PromptFile):
    mime: str


class PromptAgentAttachment(Wire):
    name: str
    source: PromptSource | None = None


class PromptV2(Wire):
    text: str
    files: list[PromptFileAttachment] | None = None
    agents: list[PromptAgentAttachment] | None = None


class SentPrompt(Wire):
    text: str
    files: list[PromptFile] | None = None
    agents: list[PromptAgentAttachment] | None = None


Delivery = Literal["steer", "queue"]
"""steer: the running turn takes the prompt up at its next step. queue: the prompt gets a turn of its own after that."""


class SessionPromptInput(Wire):
    id: MessageID | None = None
    prompt: SentPrompt
    delivery: Delivery = "steer"
    resume: Annotated[StrictBool, Field(description="false: it is stored, and starts no turn")] = True


class SessionInputAdmitted(Wire):
    """`promotedSeq`: the event with which the prompt became a message of the session."""

    admitted_seq: int
    id: MessageID
    session_id: SessionID
    prompt: PromptV2
    delivery: Delivery
    time_created: int
    promoted_seq: int | None = None


class SessionErrorUnknown(Wire):
    type: Literal["unknown"] = "unknown"
    message: str


class ToolTextContent(Wire):
    type: Literal["text"] = "text"
    text: str


class ToolFileContent(Wire):
    type: Literal["file"] = "file"
    uri: str
    mime: str
    name: str | None = None


ToolContent = Annotated[ToolTextContent | ToolFileContent, Field(discriminator="type")]


class ToolStatePending(Wire):
    """`input`: the arguments as far as the model has written them."""

    status: Literal["pending"] = "pending"
    input: str


class CalledToolState(Wire):
    status: str
    input: Metadata
    structured: Metadata
    content: list[ToolContent]


class ToolStateRunning(CalledToolState):
    status: Literal["running"] = "running"


class ToolStateCompleted(CalledToolState):
    status: Literal["completed"] = "completed"


class ToolStateError(CalledToolState):
    status: Literal["error"] = "error"
    error: SessionErrorUnknown


class ToolTime(Wire):
    created: int
    ran: int | None = None
    completed: int | None = None
    pruned: int | None = None


class ToolProvider(Wire):
    """`executed`: by the provider instead of this server."""

    executed: bool = False


class AssistantText(Wire):
    type: Literal["text"] = "text"
    id: str
    text: str


class AssistantReasoning(Wire):
    type: Literal["reasoning"] = "reasoning"
    id: str
    text: str
    time: AssistantTime


class AssistantTool(Wire):
    """`id`: of the call."""

    type: Literal["tool"] = "tool"
    id: str
    name: str
    provider: ToolProvider = ToolProvider()
    state: Annotated[ToolStatePending | ToolStateRunning | ToolStateCompleted | ToolStateError, Field(discriminator="status")]
    time: ToolTime


AssistantContent = Annotated[AssistantText | AssistantReasoning | AssistantTool, Field(discriminator="type")]


class StepSnapshot(Wire):
    start: str | None = None
    end: str | None = None
    files: list[str] | None = None


class SessionMessageUser(Wire):
    id: str
    time: UserTime
    text: str
    files: list[PromptFileAttachment] | None = None
    agents: list[PromptAgentAttachment] | None = None
    type: Literal["user"] = "user"


class SessionMessageSynthetic(Wire):
    """A text of the server for the model, in the user's place."""

    id: str
    time: UserTime
    session_id: str
    text: str
    type: Literal["synthetic"] = "synthetic"


class SessionMessageShell(Wire):
    id: str
    time: AssistantTime
    type: Literal["shell"] = "shell"
    call_id: str
    command: str
    output: str


class SessionMessageAssistant(Wire):
    id: str
    time: AssistantTime
    type: Literal["assistant"] = "assistant"
    agent: str
    model: SessionModel
    content: list[AssistantContent]
    snapshot: StepSnapshot | None = None
    finish: str | None = None
    cost: float | None = None
    tokens: Tokens | None = None
    error: SessionErrorUnknown | None = None


CompactionReason = Literal["auto", "manual"]


class SessionMessageCompaction(Wire):
    """A summary that replaces all messages before it."""

    id: str
    time: UserTime
    type: Literal["compaction"] = "compaction"
    reason: CompactionReason
    summary: str
    recent: str = ""


SessionMessage = Annotated[
    SessionMessageUser | SessionMessageSynthetic | SessionMessageShell | SessionMessageAssistant | SessionMessageCompaction,
    Field(discriminator="type"),
]


class EventNumber(Wire):
    """`seq` ascends within the session; `version` is that of the event's type."""

    aggregate_id: SessionID
    seq: int
    version: int


TIMELINE_EVENTS = {
    "session.next.agent.switched": "The session's agent is another one.",
    "session.next.model.switched": "The session's model is another one.",
    "session.next.prompt.admitted": "A prompt is stored, or queued.",
    "session.next.prompted": "The prompt is a message.",
    "session.next.synthetic": "The server says something to the model in the user's place.",
    "session.next.shell.started": "A shell line of the user has begun.",
    "session.next.shell.ended": "The shell line has ended, with its output.",
    "session.next.step.started": "The model is sent a request.",
    "session.next.step.ended": "The answer is complete, and so are its tool calls; with cost and tokens.",
    "session.next.step.failed": "The step has failed, or was aborted.",
    "session.next.text.started": "A text has begun.",
    "session.next.text.delta": "The text has grown. On `GET /api/event` alone, without a number.",
    "session.next.text.ended": "The text is complete.",
    "session.next.reasoning.started": "Reasoning has begun.",
    "session.next.reasoning.delta": "The reasoning has grown. On `GET /api/event` alone, without a number.",
    "session.next.reasoning.ended": "The reasoning is complete.",
    "session.next.tool.input.started": "The model has begun a tool call.",
    "session.next.tool.input.ended": "The call's input is complete.",
    "session.next.tool.called": "The tool runs.",
    "session.next.tool.success": "The call has ended, with its output.",
    "session.next.tool.failed": "The call has failed, was denied or was aborted.",
    "session.next.compaction.started": "A summary was asked for; told together with its end.",
    "session.next.compaction.ended": "The summary stands for all before it.",
    "session.next.retried": "A request to the model failed and is sent again.",
    "session.next.revert.staged": "Files are restored and messages hidden, until the revert is cleared or committed.",
    "session.next.revert.cleared": "The staged revert was undone.",
    "session.next.revert.committed": "The hidden messages are removed.",
}
"""By type, the event's description."""


class TimelineEvent(Wire):
    """An event of one session."""

    id: str
    type: Annotated[str, Field(description=described_types(TIMELINE_EVENTS))]
    durable: EventNumber
    data: dict[str, Any]
