"""The tool host: what a turn offers to one tool call."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from app.context import instructions
from app.permission.service import PermissionCheck, Permissions
from app.question.errors import QuestionRejected
from app.question.service import Questions
from app.schema.agent import Agent
from app.schema.event import EventFileEdited, FileRef
from app.schema.lsp import FileErrors
from app.schema.part import ToolPart
from app.schema.permission import CallRef, PermissionRequest
from app.schema.question import Answer, QuestionInfo, QuestionRequest
from app.schema.session import Session, Todo
from app.session.store import Store
from app.storage.writer import Lease
from app.tool.base import FileFormatter, LanguageQuestion, SubagentRequest, ToolError, ToolPermission, ToolResult
from app.tool.files.text_file import json_text
from app.turn import hooks
from app.turn.part_writer import PartWriter
from app.turn.tool_calls import ToolCalls
from app.util import ids
from app.workspace.instance import Instance


@dataclass(frozen=True, slots=True)
class Caller:
    """The session, agent and message that a tool call belongs to. `seen_instructions`: files that the model has been sent."""

    instance: Instance
    session: Session
    agent: Agent
    writer: PartWriter
    subagents: "Subagents"
    seen_instructions: set[str] = field(default_factory=set)


class Subagents(Protocol):
    async def run(self, caller: Caller, part: ToolPart, request: SubagentRequest) -> ToolResult:
        """Runs a task with another agent in a child session, and reports its progress on `part`."""
        ...


@dataclass(frozen=True, slots=True)
class HostServices:
    store: Store
    permissions: Permissions
    questions: Questions


class CallHost:
    def __init__(self, services: HostServices, caller: Caller, calls: ToolCalls, part: ToolPart) -> None:
        self._services = services
        self._caller = caller
        self._calls = calls
        self._part = part

    async def require_permission(self, needed: ToolPermission) -> None:
        caller = self._caller
        if needed.permission == "external_directory":
            require_readable(caller.instance, needed)
        shown = PermissionRequest(
            id=ids.ascending("permission"),
            session_id=caller.session.id,
            permission=needed.permission,
            patterns=needed.patterns,
            metadata=needed.metadata,
            always=needed.always,
            tool=self._ref(),
        )
        ruleset = [*caller.agent.permission, *(caller.session.permission or [])]
        plugin_decision = hooks.permission_decision(caller.instance.extensions.hooks)
        await self._services.permissions.ask(
            PermissionCheck(
                caller.instance.location,
                shown,
                ruleset,
                needed.subjects,
                plugin_decision,
                self._lease,
                caller.session.owner or "",
            )
        )

    async def approved_directories(self) -> list[Path]:
        caller = self._caller
        rules = await self._services.permissions.approved(caller.instance.location.project_id, caller.session.owner or "")
        patterns = [rule.pattern for rule in rules if rule.permission == "external_directory"]
        named = (Path(pattern.removesuffix("*")) for pattern in patterns if pattern.startswith("/"))
        return [path for path in named if not caller.instance.hides(path)]

    async def update(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
        self._caller.writer.tool_progress(self._part, title, metadata)

    async def ask_questions(self, questions: list[QuestionInfo]) -> list[Answer]:
        request = QuestionRequest(
            id=ids.ascending("question"), session_id=self._caller.session.id, questions=questions, tool=self._ref()
        )
        return await self._services.questions.ask(self._caller.instance.location.directory, request, self._lease)

    async def run_subagent(self, request: SubagentRequest) -> ToolResult:
        return await self._caller.subagents.run(self._caller, self._part, request)

    async def call_tool(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        return await self._calls.call(tool, arguments, ids.ascending("part"))

    async def todos(self) -> list[Todo]:
        return await self._services.store.todos(self._caller.session.id)

    async def set_todos(self, todos: list[Todo]) -> None:
        directory = self._caller.instance.location.directory
        await self._services.store.write(self._caller.session.id, directory, lambda tx: tx.put_todos(todos))

    async def instructions_near(self, path: Path) -> dict[str, str]:
        return await instructions.nearby(
            path, instructions.InstructionScope.of(self._caller.instance), self._caller.seen_instructions
        )

    async def file_edited(self, path: Path) -> None:
        event = EventFileEdited(properties=FileRef(file=str(path)))
        directory = self._caller.instance.location.directory
        self._services.store.post(self._caller.session.id, directory, lambda tx: tx.announce(event))

    async def formatters(self, path: Path) -> list[FileFormatter]:
        instance = self._caller.instance
        formatters, workspace = instance.extensions.formatters, instance.sandbox_workspace
        return [
            FileFormatter(one.name, partial(formatters.run, one, workspace), partial(formatters.failed, one))
            for one in await formatters.due(path)
        ]

    async def file_read(self, path: Path) -> None:
        await self._caller.instance.extensions.language_servers.serving(path)

    async def ask_language_servers(self, question: LanguageQuestion) -> list[Any] | None:
        servers = self._caller.instance.extensions.language_servers
        return await servers.answers(question.operation, question.path, question.text, question.place)

    async def errors_in(self, files: Mapping[Path, str]) -> Mapping[Path, FileErrors]:
        """By the paths that were given; not of files that are kept from the user."""
        instance = self._caller.instance
        texts = {path: json_text(text) for path, text in files.items()}
        found = await instance.extensions.language_servers.check(texts)
        return {path: errors for path, errors in found.items() if not instance.hides(path)}

    def _lease(self) -> Lease | None:
        return self._services.store.lease(self._caller.session.id)

    def _ref(self) -> CallRef:
        return CallRef(message_id=self._part.message_id, call_id=self._part.call_id)


def require_readable(instance: Instance, needed: ToolPermission) -> None:
    """A user's permission opens what is theirs. Raises ToolError."""
    named = [needed.metadata["filepath"]] if "filepath" in needed.metadata else needed.patterns
    for path in named:
        if instance.hides(path.removesuffix("/*") or "/"):
            raise ToolError(f"{path} is outside the directories that this user may work in.")


class UnattendedHost:
    """The host of a tool that the server runs on input from the user: everything is allowed, progress is ignored."""

    async def require_permission(self, needed: ToolPermission) -> None:
        return None

    async def approved_directories(self) -> list[Path]:
        return []

    async def update(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
        return None

    async def ask_questions(self, questions: list[QuestionInfo]) -> list[Answer]:
        raise QuestionRejected()

    async def run_subagent(self, request: SubagentRequest) -> ToolResult:
        raise ToolError("No subagent can be run here")

    async def call_tool(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        raise ToolError("No other tool can be called here")

    async def todos(self) -> list[Todo]:
        return []

    async def set_todos(self, todos: list[Todo]) -> None:
        raise ToolError("There is no todo list here")

    async def instructions_near(self, path: Path) -> dict[str, str]:
        return {}

    async def file_edited(self, path: Path) -> None:
        return None

    async def formatters(self, path: Path) -> list[FileFormatter]:
        return []

    async def file_read(self, path: Path) -> None:
        return None

    async def ask_language_servers(self, question: LanguageQuestion) -> list[Any] | None:
        return None

    async def errors_in(self, files: Mapping[Path, str]) -> Mapping[Path, FileErrors]:
        return {}
