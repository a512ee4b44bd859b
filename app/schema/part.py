"""The twelve types of part, closed in `Part`, and the four that a prompt may carry, closed in `PartInput`.

The four that a prompt may carry have a content class (what the part says), from which the part and its input, with an optional
id, are made; the others are one class.
"""

from typing import Annotated, Literal

from pydantic import Field, StrictBool, TypeAdapter

from app.schema.base import WHEN_USED, AnyID, Int64, Metadata, Wire
from app.schema.errors import APIError

# A file in a message, and where in the user's text it was named.


class SourceText(Wire):
    value: str
    start: Int64
    end: Int64


class Position(Wire):
    line: Int64
    character: Int64


class Range(Wire):
    start: Position
    end: Position


class FileSource(Wire):
    text: SourceText
    type: Literal["file"] = "file"
    path: str


class SymbolSource(Wire):
    text: SourceText
    type: Literal["symbol"] = "symbol"
    path: str
    range: Range
    name: str
    kind: Int64


class ResourceSource(Wire):
    text: SourceText
    type: Literal["resource"] = "resource"
    client_name: str
    uri: str


FilePartSource = Annotated[FileSource | SymbolSource | ResourceSource, Field(discriminator="type")]


class FileContent(Wire):
    type: Literal["file"] = "file"
    mime: str
    filename: str | None = None
    description: str | None = None
    url: str
    source: FilePartSource | None = None


class PartIdentity(Wire):
    id: str
    session_id: str
    message_id: str


class FilePart(FileContent, PartIdentity):
    pass


# What an editor shows of a file.

MAX_EDITOR_CHARACTERS = 10 * 1024 * 1024


class EditorFile(Wire):
    """A question to an editor: the text that it shows of this file, which may be unsaved."""

    id: str
    path: str


class EditorFileText(Wire):
    """`text`: the whole file's; None if the editor cannot tell."""

    id: str
    text: Annotated[str, Field(max_length=MAX_EDITOR_CHARACTERS)] | None = None


# The four states of a tool call: pending → running → completed | error.


class Started(Wire):
    start: Int64


class Ended(Started):
    end: Int64


class CompletedTime(Ended):
    compacted: Int64 | None = None


class Pending(Wire):
    sent_back = True  # clients send it back as they got it: see Wire.sent_back

    status: Literal["pending"] = "pending"
    input: Metadata = {}
    raw: str = ""


class Running(Wire):
    status: Literal["running"] = "running"
    input: Metadata
    title: str | None = None
    metadata: Metadata | None = None
    time: Started


class Completed(Wire):
    status: Literal["completed"] = "completed"
    input: Metadata
    output: str
    title: str
    metadata: Metadata
    time: CompletedTime
    attachments: list[FilePart] | None = None


class Failed(Wire):
    status: Literal["error"] = "error"
    input: Metadata
    error: str
    metadata: Metadata | None = None
    time: Ended


ToolState = Annotated[Pending | Running | Completed | Failed, Field(discriminator="status")]


# What parts consist of.


class Span(Wire):
    """Times in milliseconds since the epoch; no end until what they time has ended."""

    start: Int64
    end: Int64 | None = None


class ModelRef(Wire):
    provider_id: str
    model_id: str


class CacheTokens(Wire):
    sent_back = True

    read: Int64 = 0
    write: Int64 = 0


class Tokens(Wire):
    """`total`: newer OpenCode versions store it; kept in imported sessions, not computed here."""

    sent_back = True

    total: Int64 | None = None
    input: Int64 = 0
    output: Int64 = 0
    reasoning: Int64 = 0
    cache: CacheTokens = Field(default_factory=CacheTokens)


class TextContent(Wire):
    type: Literal["text"] = "text"
    text: str
    synthetic: StrictBool | None = None
    ignored: StrictBool | None = None
    time: Span | None = None
    metadata: Metadata | None = None


class SubtaskContent(Wire):
    type: Literal["subtask"] = "subtask"
    prompt: str
    description: str
    agent: str
    model: ModelRef | None = None
    command: str | None = None


class AgentContent(Wire):
    type: Literal["agent"] = "agent"
    name: str
    source: SourceText | None = None


class TextPart(TextContent, PartIdentity):
    pass


class SubtaskPart(SubtaskContent, PartIdentity):
    pass


class AgentPart(AgentContent, PartIdentity):
    pass


class ReasoningPart(PartIdentity):
    type: Literal["reasoning"] = "reasoning"
    text: str
    metadata: Metadata | None = None
    time: Span


class ToolPart(PartIdentity):
    type: Literal["tool"] = "tool"
    call_id: str
    tool: str
    state: ToolState
    metadata: Metadata | None = None


class StepStartPart(PartIdentity):
    type: Literal["step-start"] = "step-start"
    snapshot: str | None = None


class StepFinishPart(PartIdentity):
    type: Literal["step-finish"] = "step-finish"
    reason: str
    snapshot: str | None = None
    cost: float
    tokens: Tokens


class SnapshotPart(PartIdentity):
    type: Literal["snapshot"] = "snapshot"
    snapshot: str


class PatchPart(PartIdentity):
    type: Literal["patch"] = "patch"
    hash: str
    files: list[str]


class RetryTime(Wire):
    created: Int64


class RetryPart(PartIdentity):
    type: Literal["retry"] = "retry"
    attempt: Int64
    error: APIError
    time: RetryTime


class CompactionPart(PartIdentity):
    """`overflow` and `tail_start_id` are what clients of OpenCode 1.18 send: kept and shown."""

    type: Literal["compaction"] = "compaction"
    auto: bool
    overflow: bool | None = None
    tail_start_id: Annotated[str | None, Field(alias="tail_start_id")] = None


Part = Annotated[
    TextPart
    | SubtaskPart
    | ReasoningPart
    | FilePart
    | ToolPart
    | StepStartPart
    | StepFinishPart
    | SnapshotPart
    | PatchPart
    | AgentPart
    | RetryPart
    | CompactionPart,
    Field(discriminator="type"),
]
PART: TypeAdapter[Part] = TypeAdapter(Part, config=WHEN_USED)


class _Input(Wire):
    id: AnyID | None = None


class TextPartInput(TextContent, _Input):
    pass


class FilePartInput(FileContent, _Input):
    pass


class AgentPartInput(AgentContent, _Input):
    pass


class SubtaskPartInput(SubtaskContent, _Input):
    pass


PartInput = Annotated[TextPartInput | FilePartInput | AgentPartInput | SubtaskPartInput, Field(discriminator="type")]
