"""Puts a file that a tool has just written into the project's form. What fails changes nothing."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app.tool.base import ToolContext, ToolError
from app.tool.boundary import project_of
from app.tool.files import text_file
from app.tool.files.beneath import Root
from app.tool.files.text_file import TextFile


@dataclass(frozen=True, slots=True)
class FormattedFile:
    """`file`: as it is by now; None where no formatter is due. `errors`: why some failed, by their names."""

    file: TextFile | None = None
    errors: Mapping[str, str] = field(default_factory=dict)


async def format_file(ctx: ToolContext, path: Path, root: Root) -> FormattedFile:
    """Holds the file's lock, as who calls it does. Not for what lies outside of the project: the user has opened that to the
    model, not to the project's programs. Raises ToolError if what a formatter did cannot be undone."""
    due = await ctx.host.formatters(path) if project_of(ctx).contains(path) else ()
    if not due:
        return FormattedFile()
    file: TextFile = await asyncio.to_thread(_require, path, root)
    errors: dict[str, str] = {}
    for formatter in due:
        try:
            reason = await formatter.run()
        except asyncio.CancelledError:
            await text_file.finish_in_thread(_restored, path, file, root)
            raise
        made = await asyncio.to_thread(_read, path, root) if reason is None else None
        if made is None:
            errors[formatter.name] = reason or "it left no file that could be edited"
            formatter.failed(errors[formatter.name])
        file = made if made is not None else await text_file.finish_in_thread(_restored, path, file, root)
    return FormattedFile(file, errors)


def format_metadata(errors: Mapping[str, str]) -> dict[str, Any]:
    """Of a call: nothing where all went well."""
    return {"formatErrors": dict(errors)} if errors else {}


def _read(path: Path, root: Root) -> TextFile | None:
    with suppress(ToolError):
        return text_file.read(path, root)
    return None


def _require(path: Path, root: Root) -> TextFile:
    file = text_file.read(path, root)
    if file is None:
        raise ToolError(f"File {path} was deleted by someone else while it was written.")
    return file


def _restored(path: Path, before: TextFile, root: Root) -> TextFile:
    """The file as it was, whatever stands there by now."""
    now = _read(path, root)
    if now is not None and now.data() == before.data():
        return now
    with suppress(ToolError):
        text_file.delete(path, root)
    text_file.write(path, before.data(), before.mode, root)
    return _require(path, root)
