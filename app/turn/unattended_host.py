"""The host of a tool that the server runs on input from the user."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.question.errors import QuestionRejected
from app.schema.lsp import FileErrors
from app.schema.question import Answer, QuestionInfo
from app.schema.session import Todo
from app.tool.base import EditorText, FileFormatter, LanguageQuestion, SubagentRequest, ToolError, ToolPermission, ToolResult
from app.workspace.instance import Instance


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

    async def editor(self) -> EditorText | None:
        return None

    async def formatters(self, path: Path) -> list[FileFormatter]:
        return []

    async def file_read(self, path: Path) -> None:
        return None

    async def ask_language_servers(self, question: LanguageQuestion) -> list[Any] | None:
        return None

    async def errors_in(self, files: Mapping[Path, str]) -> Mapping[Path, FileErrors]:
        return {}
