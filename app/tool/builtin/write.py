from typing import Annotated

from pydantic import Field

from app.schema.base import Wire
from app.tool import descriptions
from app.tool.base import Tool, ToolContext, ToolError, ToolResult
from app.tool.boundary import ask_if_outside, locate, relative_name
from app.tool.files import error_report
from app.tool.files.file_change import FileEditor
from app.tool.files.file_times import FileTimes
from app.tool.files.locks import FileLocks


class WriteParameters(Wire):
    content: Annotated[str, Field(description="Everything that the file shall contain")]
    file_path: Annotated[str, Field(description="The file to write; absolute, or relative to the project directory")]


class WriteTool(Tool[WriteParameters]):
    id = "write"
    parameters = WriteParameters

    def __init__(self, times: FileTimes, locks: FileLocks) -> None:
        self._editor = FileEditor(times, locks)

    def description(self) -> str:
        return descriptions.load(self.id)

    async def execute(self, args: WriteParameters, ctx: ToolContext) -> ToolResult:
        if not args.file_path:
            raise ToolError("filePath is required")
        path = locate(ctx, args.file_path)
        await ask_if_outside(ctx, path)
        change = await self._editor.change(ctx, path, lambda _: args.content, "was read if it exists")
        errors = await ctx.host.errors_in({path: change.after})
        return ToolResult(
            title=relative_name(ctx, path),
            output="Wrote file successfully." + error_report.of_file(path, errors) + error_report.of_others(path, errors),
            metadata={
                "diagnostics": error_report.metadata([path], errors),
                "filepath": str(path),
                "exists": change.original is not None,
                **({"filediff": change.filediff()} if change.original else {}),
                **change.format_metadata(),
            },
        )
