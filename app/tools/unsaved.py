"""The text of a project's file in an editor that has the session open, if that differs from the stored text."""

import asyncio
import time
from pathlib import Path

from app.tools import text_file
from app.tools.base import ToolContext, ToolError
from app.tools.boundary import project_of, require_in_place, root_of
from app.tools.text_file import Stamp
from app.util.beneath import Root
from app.util.project_files import HeldDirectory, above

TICK_SECONDS = 0.02
"""Longer than a tick of a kernel's clock: a directory that changes again within one may keep its time."""

_PathStatus = list[tuple[int, int, int]]


async def find(ctx: ToolContext, path: Path) -> tuple[str, Stamp | None] | None:
    """The text, and the stamp of the stored file (None if there is no file). `path`: returned by `locate`, and readable for the
    session. None if the editor has the stored text, if no editor is there or answers in time, and for files that are no text."""
    editor = await ctx.host.editor()
    if editor is None or not project_of(ctx).contains(path):
        return None
    root = root_of(ctx, path)
    try:
        stored = await asyncio.to_thread(text_file.read, path, root)
        before = await _settled_path_status(path, root)
    except (ToolError, OSError):
        return None
    if stored is not None and ("\0" in stored.text or text_file.json_text(stored.text) != stored.text):
        return None
    text = await editor(path)
    if text is None or _lines(text) == _lines(stored.text if stored else ""):
        return None
    require_in_place(ctx, path)
    if await asyncio.to_thread(_path_status, path, root) != before:
        return None
    return text, stored.stamp if stored else None


async def require_saved(ctx: ToolContext, path: Path) -> None:
    """Raises ToolError if an editor has unsaved text: the written file would not be what the user sees, and saving would undo
    it."""
    if await find(ctx, path) is not None:
        raise ToolError(
            f"{path} is open in the user's editor with changes that are not saved, so it was left alone. "
            "Ask the user to save it, then read it again."
        )


def _lines(text: str) -> str:
    """Editors keep line endings, and whether the last line has one, beside the text."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").rstrip("\n")


async def _settled_path_status(path: Path, root: Root) -> _PathStatus:
    """The status, once it is old enough that any later change shows. Raises OSError."""
    status = await asyncio.to_thread(_path_status, path, root)
    if max(changed for _, _, changed in status) > time.time_ns() - TICK_SECONDS * 1e9:
        await asyncio.sleep(TICK_SECONDS)
    return status


def _path_status(path: Path, root: Root) -> _PathStatus:
    """The status of each directory down to the file. An editor follows links that a command puts there meanwhile, with rights
    that the command does not have. Then one of these directories has changed, and the editor's text is not used. Raises
    OSError."""
    top = root.path if isinstance(root, HeldDirectory) else root
    statuses = [folder.stat() for folder in above(path, top)]
    return [(status.st_dev, status.st_ino, status.st_ctime_ns) for status in statuses]
