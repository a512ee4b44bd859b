"""What a tool is, what it may ask of the turn that calls it, and what it gives back."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, RootModel

from app.permission.rules import Subject
from app.schema.agent import Agent
from app.schema.file import FileContent
from app.schema.model import Model
from app.schema.part import ModelRef
from app.schema.question import Answer, QuestionInfo
from app.schema.session import Todo


@dataclass(frozen=True, slots=True)
class PermissionAsk:
    """One request for leave (behaviour §10.5). `always` are the patterns that a reply of `always` will allow from then on;
    `subjects` say more of each pattern than people are shown, for rules that must not be evaded by spelling."""

    permission: str
    patterns: list[str]
    always: list[str]
    metadata: dict[str, Any] = field(default_factory=dict)
    subjects: Sequence[Subject] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """`metadata` with a key `truncated` says that the tool bounded its own output; otherwise tool.truncation bounds it."""

    title: str
    output: str
    metadata: dict[str, Any] = field(default_factory=dict)
    attachments: list[FileContent] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class SubagentRequest:
    description: str
    prompt: str
    agent: str
    session_id: str | None = None
    command: str | None = None


class ToolHost(Protocol):
    """The turn, as a tool sees it."""

    async def ask(self, ask: PermissionAsk) -> None:
        """Returns when it is allowed. Raises one of the errors of app.permission.errors when it is not."""
        ...

    async def update(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
        """Show progress: the running part gets this title and metadata and clients are told."""
        ...

    async def ask_questions(self, questions: list[QuestionInfo]) -> list[Answer]:
        """Raises question.errors.QuestionRejected when the person dismisses it."""
        ...

    async def run_subagent(self, request: SubagentRequest) -> ToolResult: ...

    async def call_tool(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        """Run another tool as a call of its own, with its own stored part (batch)."""
        ...

    async def todos(self) -> list[Todo]: ...

    async def set_todos(self, todos: list[Todo]) -> None: ...

    async def instructions_near(self, path: Path) -> dict[str, str]:
        """Path → text of the instruction files that stand nearer to a file than the session's directory and that the conversation
        has not shown yet."""
        ...

    async def file_edited(self, path: Path) -> None:
        """Announce `file.edited`."""
        ...


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The facts of one call. A tool is aborted by cancelling its task: clean up in `finally`, let CancelledError through.

    `directory` is where the session works and relative paths start; `worktree` is the checkout's top (`/` outside git).
    `bypass_agent_check` is set when the person named the subagent; `bypass_directory_check` when the person named the file.
    """

    session_id: str
    message_id: str
    call_id: str
    agent: Agent
    model: Model
    directory: Path
    worktree: Path
    host: ToolHost
    bypass_agent_check: bool = False
    bypass_directory_check: bool = False

    @property
    def model_ref(self) -> ModelRef:
        return ModelRef(provider_id=self.model.provider_id, model_id=self.model.id)


class ToolError(Exception):
    """What the model is told went wrong; stored as `Error: <message>`."""


P = TypeVar("P", bound=BaseModel)


@cache
def _json_schema(parameters: type[BaseModel]) -> dict[str, Any]:
    """Making it takes longer than a step's other preparations together."""
    return parameters.model_json_schema(by_alias=True)


class Tool(ABC, Generic[P]):
    """One module a tool: `id`, a Pydantic model of its parameters (its JSON schema is what the model sees), a description in
    `descriptions/<id>.txt`, and `execute`. What a tool needs beyond its call (settings, file times) comes by its constructor.
    """

    id: str
    parameters: type[P]

    @abstractmethod
    def description(self) -> str: ...

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, as the model sees it."""
        return _json_schema(self.parameters)

    @abstractmethod
    async def execute(self, args: P, ctx: ToolContext) -> ToolResult: ...


class Arguments(RootModel[dict[str, Any]]):
    """Any JSON object; `root` is the object."""


class ForeignTool(Tool[Arguments]):
    """A tool that was described elsewhere, by a JSON schema: whoever wrote it checks its arguments."""

    parameters = Arguments

    def __init__(self, id: str, description: str, schema: dict[str, Any]) -> None:
        self.id = id
        self._description = description
        self._schema = schema

    def description(self) -> str:
        return self._description

    def schema(self) -> dict[str, Any]:
        return self._schema
