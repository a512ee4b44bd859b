"""The interface of a tool, the services of the turn that calls it, and its result."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Generic, Protocol, TypeVar, cast

from pydantic import BaseModel, Field, RootModel

from app.permissions.rules import Subject
from app.project.sandbox.scope import SandboxWorkspace
from app.schema.base import Wire
from app.schema.model import Agent
from app.schema.part import FileContent
from app.schema.permission import EDITING_TOOLS, Answer, QuestionInfo
from app.schema.project import FileErrors
from app.schema.session import Todo

P = TypeVar("P", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ToolPermission:
    """A permission that a tool call needs. `always`: the patterns that a reply of `always` allows. `subjects`: facts about the
    patterns beyond those shown to users, so that another spelling of a command does not evade a rule."""

    permission: str
    patterns: list[str]
    always: list[str]
    metadata: dict[str, Any] = field(default_factory=dict)
    subjects: Sequence[Subject] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A key `truncated` in `metadata` says that the tool limits its own output; app.tools.truncation limits any other."""

    title: str
    output: str
    metadata: dict[str, Any] = field(default_factory=dict)
    attachments: list[FileContent] = field(default_factory=list)
    timeout: str | None = None
    """The timeout that ended the call, if the output so far is its result."""


class TaskParameters(Wire):
    description: Annotated[str, Field(description="The task in three to five words")]
    prompt: Annotated[str, Field(description="Everything the subagent has to know and do")]
    subagent_type: Annotated[str, Field(alias="subagent_type", description="Name of the subagent that is to do it")]
    session_id: Annotated[
        str | None, Field(alias="session_id", description="Session of an earlier task, to continue it instead of starting anew")
    ] = None
    command: Annotated[str | None, Field(description="The command that this task comes from, if any")] = None


@dataclass(frozen=True, slots=True)
class FileFormatter:
    """A program that rewrites the file. `run` returns the reason if it failed, None if not; `failed` is given each reason."""

    name: str
    run: Callable[[], Awaitable[str | None]]
    failed: Callable[[str], None]


EditorText = Callable[[Path], Awaitable[str | None]]
"""Asks an editor for a file's text; None if it does not answer, or does not have the file open."""


class ToolHost(Protocol):
    """The services of a turn that a tool may use. These methods are the services where the server itself runs a tool for a user,
    as to read a file of a prompt: everything is allowed, progress is not shown, nobody is asked."""

    async def require_permission(self, needed: ToolPermission) -> None:
        """Returns when the permission is granted. Raises an error of app.permissions.service if it is denied or rejected."""
        return

    def in_order(self) -> AbstractAsyncContextManager[Any]:
        """Is held while a call finds out what it needs permission for: the calls of a step ask in their order."""
        return nullcontext()

    async def approved_directories(self) -> list[Path]:
        """The directories outside the project that replies of `always` have allowed."""
        return []

    async def update(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
        """Shows progress: sets the title and metadata of the running part and publishes it."""
        return

    async def ask_questions(self, questions: list[QuestionInfo]) -> list[Answer]:
        """Raises app.permissions.questions.QuestionRejected if the user dismisses the question."""
        raise ToolError("Nobody can be asked here")

    async def run_subagent(self, request: TaskParameters) -> ToolResult:
        raise ToolError("No subagent can be run here")

    async def call_tool(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        """Runs another tool as a call with its own stored part, for the batch tool."""
        raise ToolError("No other tool can be called here")

    async def todos(self) -> list[Todo]:
        return []

    async def set_todos(self, todos: list[Todo]) -> None:
        raise ToolError("There is no todo list here")

    async def instructions_near(self, path: Path) -> dict[str, str]:
        """Path → text of the instruction files between the session's directory and the file that the conversation does not hold
        yet."""
        return {}

    async def file_edited(self, path: Path) -> None:
        """Publishes `file.edited`."""
        return

    async def editor(self) -> EditorText | None:
        """Reads files in the editor that has the session open, if there is one that lends them."""
        return None

    async def formatters(self, path: Path) -> Sequence[FileFormatter]:
        """The formatters that the project uses for the file, in their order."""
        return []

    async def file_read(self, path: Path) -> None:
        """Starts language servers that may be asked about the file soon."""
        return

    async def ask_language_servers(self, operation: str, path: Path, text: str, position: tuple[int, int]) -> list[Any] | None:
        """The answer of each language server to one of the operations of the tool `lsp`; None if there is none for the file.
        `text`: the file's. `position`: line and character, from 0."""
        return None

    async def errors_in(self, files: Mapping[Path, str]) -> Mapping[Path, FileErrors]:
        """The errors that language servers find in these files with these texts, and in others."""
        return {}


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The facts of one call. An abort cancels the tool's task: clean up in `finally` and let CancelledError through.

    `sandbox_workspace`: the session's directory, to which paths are relative, and the root of the checkout, as they were opened.
    `bypass_agent_check`: the user named the subagent. `bypass_directory_check`: the user named the file.
    """

    session_id: str
    message_id: str
    call_id: str
    agent: Agent
    sandbox_workspace: SandboxWorkspace
    host: ToolHost
    bypass_agent_check: bool = False
    bypass_directory_check: bool = False

    @property
    def directory(self) -> Path:
        return self.sandbox_workspace.directory

    @property
    def worktree(self) -> Path:
        """The root of the checkout; `/` outside git."""
        return self.sandbox_workspace.worktree


class ToolError(Exception):
    """A failure that is reported to the model and stored as `Error: <message>`."""


class ToolTimeout(ToolError):
    """Something that the tool waited for took too long."""


@cache
def _json_schema(parameters: type[BaseModel]) -> dict[str, Any]:
    """Cached: generating a schema takes longer than all other preparations of a step."""
    schema = parameters.model_json_schema(by_alias=True)
    return cast(dict[str, Any], _inlined(schema, schema.pop("$defs", {})))


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Without references, which Gemini and other providers refuse, and without titles, which only repeat names. A definition that
    holds itself is any value there."""
    match schema:
        case {"$ref": str(reference), **beside}:
            name = reference.removeprefix("#/$defs/")
            others = {key: value for key, value in definitions.items() if key != name}
            return {**_inlined(definitions.get(name, {}), others), **beside}
        case dict():
            return {
                key: _inlined(value, definitions)
                for key, value in schema.items()
                if key != "title" or isinstance(value, dict)  # the argument of that name
            }
        case list():
            return [_inlined(value, definitions) for value in schema]
    return schema


@cache
def load_description(tool_id: str) -> str:
    return resources.files("app.tools").joinpath("descriptions", f"{tool_id}.txt").read_text("utf-8").strip()


class Tool(ABC, Generic[P]):
    """Has an `id`, a Pydantic model of the parameters (the model sees its JSON schema), a description in `descriptions/<id>.txt`,
    and `execute`. The constructor takes what a tool needs beyond its call (settings, file times)."""

    id: str
    parameters: type[P]
    edits_files = False
    """Whether the tool changes the files that it names, or fails and changes nothing. Such a tool asks the permission `edit`."""

    def __init_subclass__(cls) -> None:
        if cls.edits_files:
            EDITING_TOOLS.add(cls.id)

    @cached_property
    def description(self) -> str:
        return load_description(self.id)

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, as the model sees it."""
        return _json_schema(self.parameters)

    @abstractmethod
    async def execute(self, args: P, ctx: ToolContext) -> ToolResult: ...


class Arguments(RootModel[dict[str, Any]]):
    """Any JSON object, as `root`."""


class ExternalTool(Tool[Arguments]):
    """A tool that another program describes with a JSON schema and that validates its own arguments."""

    parameters = Arguments

    def __init__(self, id: str, description: str, schema: dict[str, Any]) -> None:
        self.id = id
        self.description = description
        self.schema = schema
