"""Shared by edit, multiedit and write: changes one file after a check, with a diff and a permission request."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Self

from app.tool.base import ToolContext, ToolError, ToolPermission
from app.tool.boundary import relative_name, require_in_place, root_of
from app.tool.files import diff_text, text_file, unsaved
from app.tool.files.diff_text import FileDelta
from app.tool.files.file_times import FileTimes
from app.tool.files.formatting import FormattedFile, format_file, format_metadata
from app.tool.files.locks import FileLocks
from app.tool.files.text_file import TextFile

Requirement = Literal["exists and was read", "was read if it exists", "nothing"]


@dataclass(frozen=True, slots=True)
class TextChange:
    path: Path
    original: TextFile | None
    after: str
    data: bytes
    delta: FileDelta
    format_errors: Mapping[str, str] = field(default_factory=dict)
    """Why formatters failed, by their names."""

    @property
    def diff(self) -> str:
        return self.delta.text

    def filediff(self) -> dict[str, Any]:
        """OpenCode's FileDiff with an absolute path: newer clients read the patch, older ones both texts."""
        return {
            "file": str(self.path),
            "before": text_file.json_text(self.original.text if self.original else ""),
            "after": text_file.json_text(self.after),
            "patch": self.diff,
            "additions": self.delta.additions,
            "deletions": self.delta.deletions,
        }

    def edit_metadata(self) -> dict[str, Any]:
        return {"diagnostics": {}, "diff": self.diff, "filediff": self.filediff(), **self.format_metadata()}

    def format_metadata(self) -> dict[str, Any]:
        return format_metadata(self.format_errors)

    def formatted(self, formatted: FormattedFile) -> Self:
        """With the text that formatters have made of it."""
        if formatted.file is None or formatted.file.text == self.after:
            return replace(self, format_errors=formatted.errors)
        before, after = self.original.text if self.original else "", formatted.file.text
        delta = diff_text.compare(str(self.path), text_file.json_text(before), text_file.json_text(after))
        return replace(self, after=after, data=formatted.file.data(), delta=delta, format_errors=formatted.errors)


class FileEditor:
    def __init__(self, times: FileTimes, locks: FileLocks) -> None:
        self._times = times
        self._locks = locks

    async def change(self, ctx: ToolContext, path: Path, derive: Callable[[str], str], requirement: Requirement) -> TextChange:
        """Writes `derive(text)` after asking the permission `edit`. `text` is empty for a new file. `derive` runs in a thread.
        Holds the file's lock throughout, so that a parallel change starts from the result of this one.
        """
        async with self._locks.hold(path):
            root = root_of(ctx, path)
            original = await asyncio.to_thread(text_file.read, path, root)
            self._require(ctx.session_id, path, original, requirement)
            await unsaved.require_saved(ctx, path)
            change = await asyncio.to_thread(plan_change, path, original, derive)
            await ctx.host.require_permission(_edit_permission(ctx, change))
            require_in_place(ctx, path)
            text_file.require_unchanged(path, original, root)
            stamp = await text_file.finish_in_thread(text_file.write, path, change.data, None, root)
            self._times.record(ctx.session_id, path, stamp)
            formatted = await format_file(ctx, path, root)
            if formatted.file is not None:
                self._times.record(ctx.session_id, path, formatted.file.stamp)
                change = await asyncio.to_thread(change.formatted, formatted)
        await ctx.host.file_edited(path)
        return change

    def _require(self, session_id: str, path: Path, original: TextFile | None, requirement: Requirement) -> None:
        if original is None:
            if requirement == "exists and was read":
                raise ToolError(f"File {path} not found")
        elif requirement != "nothing":
            self._times.check(session_id, path, original.stamp)


def plan_change(path: Path, original: TextFile | None, derive: Callable[[str], str]) -> TextChange:
    before = original.text if original else ""
    after = derive(before)
    delta = diff_text.compare(str(path), text_file.json_text(before), text_file.json_text(after))
    return TextChange(path, original, after, text_file.encode(after, original), delta)


def _edit_permission(ctx: ToolContext, change: TextChange) -> ToolPermission:
    return ToolPermission("edit", [relative_name(ctx, change.path)], ["*"], {"filepath": str(change.path), "diff": change.diff})
