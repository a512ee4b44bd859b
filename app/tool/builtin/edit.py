from typing import Annotated

from pydantic import Field

from app.schema.base import Wire
from app.tool import descriptions
from app.tool.base import Tool, ToolContext, ToolError, ToolResult
from app.tool.boundary import ask_if_outside, locate, relative_name
from app.tool.files import error_report
from app.tool.files.file_change import FileEditor, Requirement
from app.tool.files.file_times import FileTimes
from app.tool.files.locks import FileLocks
from app.tool.files.replace import replace


class TextEdit(Wire):
    """One replacement. An empty `old_string` replaces the whole file."""

    old_string: Annotated[str, Field(description="The text to replace; empty to give the file new content as a whole")]
    new_string: Annotated[str, Field(description="The text to put in its place; must differ from oldString")]
    replace_all: Annotated[bool, Field(description="Replace every occurrence of oldString instead of exactly one")] = False

    def require_change(self) -> None:
        if self.old_string == self.new_string:
            raise ToolError("oldString and newString are the same: there is nothing to change")

    @property
    def requirement(self) -> Requirement:
        """The precondition of the edit: a file that is replaced as a whole need not have been read."""
        return "exists and was read" if self.old_string else "nothing"

    def apply(self, text: str) -> str:
        if not self.old_string:
            return self.new_string
        return replace(text, self.old_string, self.new_string, replace_all=self.replace_all)


class EditParameters(TextEdit):
    file_path: Annotated[str, Field(description="The file to change; absolute, or relative to the project directory")]


class EditTool(Tool[EditParameters]):
    id = "edit"
    parameters = EditParameters

    def __init__(self, times: FileTimes, locks: FileLocks) -> None:
        self._editor = FileEditor(times, locks)

    def description(self) -> str:
        return descriptions.load(self.id)

    async def execute(self, args: EditParameters, ctx: ToolContext) -> ToolResult:
        if not args.file_path:
            raise ToolError("filePath is required")
        args.require_change()
        path = locate(ctx, args.file_path)
        await ask_if_outside(ctx, path)
        change = await self._editor.change(ctx, path, args.apply, args.requirement)
        metadata = change.edit_metadata()
        await ctx.host.update(metadata=metadata)
        errors = await ctx.host.errors_in({path: change.after})
        output = "Edit applied successfully." + error_report.of_file(path, errors)
        return ToolResult(relative_name(ctx, path), output, {**metadata, "diagnostics": error_report.metadata([path], errors)})
