"""The tools `edit`, `multiedit` and `write`: each changes one file."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from app.schema.base import Wire
from app.tools import changes
from app.tools.base import Tool, ToolContext, ToolError, ToolResult
from app.tools.boundary import ask_if_outside, locate, relative_name
from app.tools.changes import FileEditor, Requirement
from app.tools.replace import replace


class TextEdit(Wire):
    """One replacement. An empty `oldString` replaces the whole file."""

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


async def _file_to_change(ctx: ToolContext, name: str) -> Path:
    if not name:
        raise ToolError("filePath is required")
    path = locate(ctx, name)
    await ask_if_outside(ctx, path)
    return path


class EditParameters(TextEdit):
    file_path: Annotated[str, Field(description="The file to change; absolute, or relative to the project directory")]


class EditTool(Tool[EditParameters]):
    id = "edit"
    parameters = EditParameters
    edits_files = True

    def __init__(self, editor: FileEditor) -> None:
        self._editor = editor

    async def execute(self, args: EditParameters, ctx: ToolContext) -> ToolResult:
        args.require_change()
        path = await _file_to_change(ctx, args.file_path)
        change, format_errors = await self._editor.change(ctx, path, args.apply, args.requirement)
        metadata = change.edit_metadata(format_errors)
        await ctx.host.update(metadata=metadata)
        errors = await ctx.host.errors_in({path: change.after})
        output = "Edit applied successfully." + changes.errors_in_file(path, errors)
        return ToolResult(relative_name(ctx, path), output, {**metadata, "diagnostics": changes.diagnostics([path], errors)})


class MultiEditParameters(Wire):
    file_path: Annotated[str, Field(description="The file to change; absolute, or relative to the project directory")]
    edits: Annotated[list[TextEdit], Field(description="The replacements, each made in the outcome of those before it")]


class MultiEditTool(Tool[MultiEditParameters]):
    """Applies several edits to one file, or none."""

    id = "multiedit"
    parameters = MultiEditParameters
    edits_files = True

    def __init__(self, editor: FileEditor) -> None:
        self._editor = editor

    async def execute(self, args: MultiEditParameters, ctx: ToolContext) -> ToolResult:
        if not args.edits:
            raise ToolError("edits must hold at least one edit")
        for edit in args.edits:
            edit.require_change()
        if any(not edit.old_string for edit in args.edits[1:]):
            raise ToolError("Only the first edit may have an empty oldString: it gives the file its whole content")
        path = await _file_to_change(ctx, args.file_path)
        requirement = args.edits[0].requirement
        change, format_errors = await self._editor.change(ctx, path, lambda text: _apply_all(text, args.edits), requirement)
        errors = await ctx.host.errors_in({path: change.after})
        output = f"Applied {len(args.edits)} edits successfully." + changes.errors_in_file(path, errors)
        metadata = {**change.edit_metadata(format_errors), "diagnostics": changes.diagnostics([path], errors)}
        return ToolResult(relative_name(ctx, path), output, metadata)


def _apply_all(text: str, edits: list[TextEdit]) -> str:
    for number, edit in enumerate(edits, 1):
        try:
            text = edit.apply(text)
        except ToolError as error:
            raise ToolError(f"Edit {number} of {len(edits)} failed, so none was made: {error}") from error
    return text


class WriteParameters(Wire):
    content: Annotated[str, Field(description="Everything that the file shall contain")]
    file_path: Annotated[str, Field(description="The file to write; absolute, or relative to the project directory")]


class WriteTool(Tool[WriteParameters]):
    id = "write"
    parameters = WriteParameters
    edits_files = True

    def __init__(self, editor: FileEditor) -> None:
        self._editor = editor

    async def execute(self, args: WriteParameters, ctx: ToolContext) -> ToolResult:
        path = await _file_to_change(ctx, args.file_path)
        change, format_errors = await self._editor.change(ctx, path, lambda _: args.content, "was read if it exists")
        exists = change.type != "add"
        errors = await ctx.host.errors_in({path: change.after})
        return ToolResult(
            title=relative_name(ctx, path),
            output="Wrote file successfully." + changes.errors_in_file(path, errors) + changes.errors_in_others(path, errors),
            metadata={
                "diagnostics": changes.diagnostics([path], errors),
                "filepath": str(path),
                "exists": exists,
                **({"filediff": change.filediff()} if exists else {}),
                **changes.format_metadata(format_errors),
            },
        )
