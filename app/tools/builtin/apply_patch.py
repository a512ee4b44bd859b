"""Changes to several files that are planned in memory and then written together, or not at all."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, assert_never

from pydantic import Field

from app.schema.base import Wire
from app.tools import changes, patch
from app.tools.base import Tool, ToolContext, ToolError, ToolResult
from app.tools.boundary import ask_if_outside, locate, relative_name
from app.tools.changes import FileBatch, FileChange, FileEditor, files_left, format_metadata
from app.tools.patch import AddFile, DeleteFile, PatchChange, PatchError, UpdateFile

_MARKS = {"add": "A", "update": "M", "move": "M", "delete": "D"}


class ApplyPatchParameters(Wire):
    patch_text: Annotated[str, Field(description="The whole patch, from *** Begin Patch to *** End Patch")]


class ApplyPatchTool(Tool[ApplyPatchParameters]):
    """Changes several files at once. The whole patch is validated before the user is asked, and applied completely or not at
    all."""

    id = "apply_patch"
    parameters = ApplyPatchParameters
    edits_files = True

    def __init__(self, editor: FileEditor) -> None:
        self._editor = editor

    async def execute(self, args: ApplyPatchParameters, ctx: ToolContext) -> ToolResult:
        patched = _parsed(args.patch_text)
        places = _places(ctx, patched)
        paths = list(dict.fromkeys(places.values()))
        for path in paths:
            await ask_if_outside(ctx, path)
        named = {"filepath": ", ".join(relative_name(ctx, path) for path in paths)}
        made, format_errors = await self._editor.change_all(
            ctx, paths, lambda batch: _plan(batch, patched, places), lambda planned: {**named, **_metadata(ctx, planned)}
        )
        left = {path: made[at].after for path, at in files_left(made).items()}
        errors = await ctx.host.errors_in(left)
        shown = {change.result_path: relative_name(ctx, change.result_path) for change in made if change.type != "delete"}
        lines = [f"{_MARKS[change.type]} {relative_name(ctx, change.result_path)}" for change in made]
        output = "\n".join(["Success: the patch is applied. Files changed:", *lines])
        output += changes.errors_text({path: f"{name}, please fix:" for path, name in shown.items()}, errors)
        found = {"diagnostics": changes.diagnostics([*shown], errors)}
        return ToolResult(output, output, {**_metadata(ctx, made), **found, **format_metadata(format_errors)})


def _parsed(text: str) -> list[PatchChange]:
    if not text.strip():
        raise ToolError("patchText is required")
    try:
        changes = patch.parse(text)
    except PatchError as error:
        raise _verification_error(error) from error
    if not changes:
        raise ToolError("patch rejected: empty patch")
    return changes


def _verification_error(error: Exception) -> ToolError:
    return ToolError(f"apply_patch verification failed: {error}")


def _places(ctx: ToolContext, patched: list[PatchChange]) -> dict[str, Path]:
    """The resolved paths of the files that the patch names."""
    names = []
    for change in patched:
        move_to = change.move_to if isinstance(change, UpdateFile) else None
        # Resolved paths name the target of a link: deleting or moving it would leave the link itself.
        if (move_to or isinstance(change, DeleteFile)) and (ctx.directory / change.path).is_symlink():
            raise _verification_error(PatchError(f"{change.path} is a symbolic link: use the bash tool to delete or move it"))
        names += [change.path, *([move_to] if move_to else [])]
    return {name: locate(ctx, name) for name in names}


def _plan(batch: FileBatch, patched: list[PatchChange], places: Mapping[str, Path]) -> list[FileChange]:
    try:
        return [_apply(batch, change, places) for change in patched]
    except (PatchError, ToolError) as error:
        raise _verification_error(error) from error


def _apply(batch: FileBatch, change: PatchChange, places: Mapping[str, Path]) -> FileChange:
    path = places[change.path]
    before = batch.text(path)
    match change:
        case AddFile(content=content):
            batch.put(path, content)
            return FileChange.of("add", path, before or "", content)
        case DeleteFile():
            batch.remove(path)
            return FileChange.of("delete", path, _existing(before, path, "delete"), "")
        case UpdateFile(move_to=move_to, chunks=chunks):
            text, target = _existing(before, path, "update"), places[move_to] if move_to else path
            after = patch.apply_chunks(text, chunks, str(path))
            if target == path:
                batch.put(path, after)
                return FileChange.of("update", path, text, after)
            batch.move(path, target, after)
            return FileChange.of("move", path, text, after, target)
        case _:
            assert_never(change)


def _existing(text: str | None, path: Path, action: str) -> str:
    if text is None:
        raise PatchError(f"the file to {action} does not exist: {path}")
    return text


def _metadata(ctx: ToolContext, planned: Sequence[FileChange]) -> dict[str, Any]:
    return {"diff": "\n".join(change.delta.text for change in planned), "files": [_entry(ctx, change) for change in planned]}


def _entry(ctx: ToolContext, change: FileChange) -> dict[str, Any]:
    entry = {
        "filePath": str(change.path),
        "relativePath": relative_name(ctx, change.result_path),
        "type": change.type,
        "diff": change.delta.text,
        "before": change.before,
        "after": change.after,
        "additions": change.delta.additions,
        "deletions": change.delta.deletions,
    }
    return entry | ({"movePath": str(change.move_path)} if change.move_path else {})
