"""Messages, closed in `Message`, clients' requests to a session, and what a visitor of a share link is given."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, TypeAdapter, field_serializer, model_validator

from app.schema.base import WHEN_USED, Int64, MessageID, SessionID, Wire
from app.schema.errors import MessageError
from app.schema.part import FilePartInput, ModelRef, Part, PartInput, Tokens
from app.schema.session import FileDiff, SessionSummary, SessionTime, Todo


class UserTime(Wire):
    created: Int64


class AssistantTime(Wire):
    created: Int64
    completed: Int64 | None = None


class UserSummary(Wire):
    title: str | None = None
    body: str | None = None
    diffs: list[FileDiff]


class MessagePath(Wire):
    """Where the turn ran: the instance's directory and its worktree."""

    cwd: str
    root: str


class TextFormat(Wire):
    """The answer may be any text."""

    type: Literal["text"]


class JsonSchemaFormat(Wire):
    """The answer is an object that fits the schema."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(description="A JSON schema of an object; a $ref stays within it")]
    retry_count: Annotated[
        int | None, Field(ge=0, description="How often a model that gives no such answer is asked again: 2 if absent, at most 10")
    ] = None


AnswerFormat = Annotated[TextFormat | JsonSchemaFormat, Field(discriminator="type")]


class PromptedModel(ModelRef):
    """The model of a prompt with its variant, where clients of OpenCode 1.18 look for it."""

    variant: str | None = None


class UserMessage(Wire):
    id: str
    session_id: str
    role: Literal["user"] = "user"
    time: UserTime
    summary: UserSummary | None = None
    agent: str
    model: ModelRef
    system: str | None = None
    tools: dict[str, StrictBool] | None = None
    variant: str | None = None
    format: AnswerFormat | None = None
    deadline: Annotated[
        Int64 | None, Field(description="When its answer must be complete, in epoch milliseconds; set by `deadlineSeconds`")
    ] = None

    @field_serializer("model")
    def _with_variant(self, model: ModelRef) -> PromptedModel:
        return PromptedModel(provider_id=model.provider_id, model_id=model.model_id, variant=self.variant)


class AssistantMessage(Wire):
    """`tokens` are the last step's, `cost` is the sum over steps, in dollars."""

    id: str
    session_id: str
    role: Literal["assistant"] = "assistant"
    time: AssistantTime
    error: MessageError | None = None
    parent_id: str
    model_id: str
    provider_id: str
    mode: str
    agent: str
    path: MessagePath
    summary: bool | None = None
    variant: str | None = None
    cost: float = 0
    tokens: Tokens = Field(default_factory=Tokens)
    structured: Annotated[Any, Field(description="The answer, where the prompt's `format` asked for one by a JSON schema")] = None
    finish: str | None = None


Message = Annotated[UserMessage | AssistantMessage, Field(discriminator="role")]
MESSAGE: TypeAdapter[Message] = TypeAdapter(Message, config=WHEN_USED)


class MessageWithParts(Wire):
    info: Message
    parts: list[Part]


MESSAGES: TypeAdapter[list[MessageWithParts]] = TypeAdapter(list[MessageWithParts], config=WHEN_USED)


MAX_DEADLINE_SECONDS = 7 * 86_400

WhenBusy = Literal["join", "reject", "interrupt", "queue"]
"""What happens to a prompt to a busy session: the running turn answers it too, it is refused, it aborts the turn, or it waits in
the queue for a turn of its own."""


class PromptInput(Wire):
    message_id: MessageID | None = None
    model: ModelRef | None = None
    agent: str | None = None
    no_reply: StrictBool | None = None
    tools: dict[str, StrictBool] | None = None
    system: str | None = None
    variant: str | None = None
    format: AnswerFormat | None = None
    when_busy: Annotated[
        WhenBusy | None,
        Field(
            description="What becomes of the prompt while the session is busy. join (the default): the running turn answers it "
            "too; reject: 409; interrupt: the running turn is aborted, then this prompt is answered; queue: it gets a turn of "
            "its own after the running one, and is no message of the session before"
        ),
    ] = None
    deadline_seconds: Annotated[
        float | None,
        Field(
            gt=0,
            le=MAX_DEADLINE_SECONDS,
            description="From now on. When they have passed, the turn that answers the prompt is aborted",
        ),
    ] = None
    parts: list[PartInput]

    @model_validator(mode="after")
    def _may_wait(self) -> Self:
        if self.no_reply and self.when_busy == "queue":
            raise ValueError("whenBusy cannot be queue with noReply: what wants no answer has no turn to wait for")
        return self


class QueuedTime(Wire):
    created: int


class QueuedPrompt(Wire):
    """A prompt that waits for a turn of its own. Its message gets its id when that turn begins, unless the prompt names one."""

    id: str
    session_id: str
    time: QueuedTime
    prompt: PromptInput


class CommandInput(Wire):
    command: str
    arguments: str
    message_id: MessageID | None = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    parts: list[FilePartInput] | None = None


class ShellInput(Wire):
    message_id: Annotated[MessageID, Field(description="Of the user message; it must be new")] | None = None
    agent: str
    command: str
    model: ModelRef | None = None


class SummarizeInput(Wire):
    provider_id: str
    model_id: str
    auto: StrictBool = False


class InitInput(Wire):
    provider_id: str
    model_id: str
    message_id: MessageID


class SharedSession(Wire):
    """What a visitor may know of a session: no directory, no project, no permission rules."""

    id: SessionID
    title: str
    version: str
    time: SessionTime
    summary: SessionSummary | None = None


class SharedConversation(Wire):
    session: SharedSession
    messages: list[MessageWithParts]
    diff: list[FileDiff]
    todo: list[Todo]
