from typing import Annotated

from pydantic import Field

from app.schema.base import Wire
from app.tool import descriptions
from app.tool.base import Tool, ToolContext, ToolError, ToolResult
from app.tool.boundary import ask_if_outside, locate, relative_name
from app.tool.builtin.edit import TextEdit
from app.tool.files import error_report
from app.tool.files.file_change import FileEditor
from app.tool.files.file_times import FileTimes
from app.tool.files.locks import FileLocks


class MultiEditParameters(Wire):
    file_path: Annotated[str, Field(description="The file to change; absolute, or relative to the project directory")]
    edits: Annotated[list[TextEdit], Field(description="The replacements, each made in the outcome of those before it")]


class MultiEditTool(Tool[MultiEditParameters]):
    """Applies several edits to one file, or none."""

    id = "multiedit"
    parameters = MultiEditParameters

    def __init__(self, times: FileTimes, locks: FileLocks) -> None:
        self._editor = FileEditor(times, locks)

    def description(self) -> str:
        return descriptions.load(self.id)

    async def execute(self, args: MultiEditParameters, ctx: ToolContext) -> ToolResult:
        _require_valid(args)
        path = locate(ctx, args.file_path)
        await ask_if_outside(ctx, path)
        change = await self._editor.change(ctx, path, lambda text: _apply_all(text, args.edits), args.edits[0].requirement)
        errors = await ctx.host.errors_in({path: change.after})
        output = f"Applied {len(args.edits)} edits successfully." + error_report.of_file(path, errors)
        metadata = {**change.edit_metadata(), "diagnostics": error_report.metadata([path], errors)}
        return ToolResult(relative_name(ctx, path), output, metadata)


def _require_valid(args: MultiEditParameters) -> None:
    if not args.file_path:
        raise ToolError("filePath is required")
    if not args.edits:
        raise ToolError("edits must hold at least one edit")
    for edit in args.edits:
        edit.require_change()
    if any(not edit.old_string for edit in args.edits[1:]):
        raise ToolError("Only the first edit may have an empty oldString: it gives the file its whole content")


def _apply_all(text: str, edits: list[TextEdit]) -> str:
    for number, edit in enumerate(edits, 1):
        try:
            text = edit.apply(text)
        except ToolError as error:
            raise ToolError(f"Edit {number} of {len(edits)} failed, so none was made: {error}") from error
    return text
