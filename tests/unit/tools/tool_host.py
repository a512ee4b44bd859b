"""A turn that does nothing but remember: what the tools' tests run against."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from pathlib import Path
from typing import Any

from app.schema.project import FileErrors
from app.tools.base import EditorText, FileFormatter, ToolContext, ToolPermission, ToolResult

MakeContext = Callable[..., ToolContext]


async def run(tool: Any, ctx: ToolContext, /, **arguments: Any) -> ToolResult:
    return await tool.execute(tool.parameters.model_validate(arguments), ctx)


class FakeHost:
    """Records what a tool asks of its turn. Set `refuse` to an exception to refuse every permission, `buffers` for an editor's
    files, `calls` for what other tools give back."""

    def __init__(self) -> None:
        self.asks: list[ToolPermission] = []
        self.updates: list[dict[str, Any]] = []
        self.edited: list[Path] = []
        self.buffers: dict[Path, str] | None = None
        self.on_editor: Callable[[Path], None] = lambda path: None
        self.due: list[FileFormatter] = []
        self.errors: dict[Path, FileErrors] = {}
        self.instructions: dict[str, str] = {}
        self.called: list[tuple[str, dict[str, Any]]] = []
        self.calls: dict[str, ToolResult | Exception] = {}
        self.refuse: Exception | None = None
        self.on_ask: Callable[[ToolPermission], None] = lambda ask: None

    @property
    def permissions(self) -> list[str]:
        return [ask.permission for ask in self.asks]

    async def require_permission(self, needed: ToolPermission) -> None:
        self.asks.append(needed)
        self.on_ask(needed)
        if self.refuse is not None:
            raise self.refuse

    def in_order(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext()

    async def approved_directories(self) -> list[Path]:
        return []

    async def update(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
        self.updates.append({"title": title, "metadata": metadata})

    async def call_tool(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        self.called.append((tool, arguments))
        result = self.calls.get(tool, ToolResult(tool, f"{tool} ran"))
        if isinstance(result, Exception):
            raise result
        return result

    async def instructions_near(self, path: Path) -> dict[str, str]:
        return self.instructions

    async def file_edited(self, path: Path) -> None:
        self.edited.append(path)

    async def editor(self) -> EditorText | None:
        return None if self.buffers is None else self._shown_in_editor

    async def _shown_in_editor(self, path: Path) -> str | None:
        self.on_editor(path)
        return (self.buffers or {}).get(path)

    async def formatters(self, path: Path) -> list[FileFormatter]:
        return self.due

    async def file_read(self, path: Path) -> None:
        pass

    async def ask_language_servers(self, operation: str, path: Path, text: str, position: tuple[int, int]) -> list[Any] | None:
        return None

    async def errors_in(self, files: Mapping[Path, str]) -> Mapping[Path, FileErrors]:
        return self.errors
