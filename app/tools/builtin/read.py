"""Reads text files in pages; images and PDFs are attached. The name and the first bytes of a file say which it is."""

import asyncio
import base64
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import Field

from app.schema.base import Wire
from app.schema.part import FileContent
from app.tools import text_file, unsaved
from app.tools.base import Tool, ToolContext, ToolError, ToolPermission, ToolResult
from app.tools.boundary import ask_if_outside, locate, relative_name, require_in_place, root_of
from app.tools.text_file import FileTimes, Stamp
from app.util.beneath import Root, names_in, opened

DEFAULT_LIMIT = 2_000
MAX_LINE_CHARS = 2_000
MAX_BYTES = 50 * 1024
MAX_ATTACHMENT_BYTES = 10 * 1024 * 1024
MAX_SCANNED_BYTES = 4 * 1024**3
_PREVIEW_LINES = 20
_SUGGESTIONS = 3
# A UTF-8 character has up to four bytes; one more byte shows that the line continues.
_LINE_BYTES = 4 * MAX_LINE_CHARS + 4
_SKIP_BYTES = 1024 * 1024

SNIFFED_BYTES = 4096
_UNPRINTABLE_SHARE = 0.3
# fmt: off
_BINARY_SUFFIXES = frozenset(
    (
        "zip", "tar", "gz", "exe", "dll", "so", "class", "jar", "war", "7z", "doc", "docx", "xls", "xlsx",
        "ppt", "pptx", "odt", "ods", "odp", "bin", "dat", "obj", "o", "a", "lib", "wasm", "pyc", "pyo",
    )
)
# fmt: on
_ATTACHED = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "bmp": "image/bmp",
    "ico": "image/x-icon",
    "tif": "image/tiff",
    "tiff": "image/tiff",
    "avif": "image/avif",
    "heic": "image/heic",
    "pdf": "application/pdf",
}
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"%PDF-": "application/pdf",
}
_UNPRINTABLE = bytes(range(9)) + bytes(range(14, 32))


class ReadParameters(Wire):
    file_path: Annotated[str, Field(description="The file to read; absolute, or relative to the project directory")]
    offset: Annotated[int | None, Field(ge=0, description="How many lines to skip at the start of the file (default 0)")] = None
    limit: Annotated[int | None, Field(ge=0, description=f"How many lines to read at most (default {DEFAULT_LIMIT})")] = None


@dataclass(frozen=True, slots=True)
class _FilePage:
    """`lines` of the file, starting at line `offset` (0-based). `total` is None unless the end of the file was reached."""

    lines: list[str]
    offset: int
    total: int | None
    cut_by_bytes: bool


class ReadTool(Tool[ReadParameters]):
    id = "read"
    parameters = ReadParameters

    def __init__(self, times: FileTimes) -> None:
        self._times = times

    async def execute(self, args: ReadParameters, ctx: ToolContext) -> ToolResult:
        if not args.file_path:
            raise ToolError("filePath is required")
        path = locate(ctx, args.file_path)
        await ask_if_outside(ctx, path)
        await ctx.host.require_permission(ToolPermission("read", [str(path)], ["*"]))
        require_in_place(ctx, path)
        title, offset, limit = relative_name(ctx, path), args.offset or 0, args.limit or DEFAULT_LIMIT
        if in_editor := await unsaved.find(ctx, path):
            text, stamp = in_editor
            page = _page(BytesIO(text.encode("utf-8", "replace")), offset, limit)
            result = _page_result(title, page, is_unsaved=True)
        else:
            result, stamp = await asyncio.to_thread(_open, ctx, path, title, offset, limit)
        if stamp is not None:
            self._times.record(ctx.session_id, path, stamp)
            await ctx.host.file_read(path)
        return _with_instructions(result, await ctx.host.instructions_near(path))


def _open(ctx: ToolContext, path: Path, title: str, offset: int, limit: int) -> tuple[ToolResult, Stamp | None]:
    """The stamp is None for an image or PDF, which cannot be edited."""
    root = root_of(ctx, path)
    try:
        with opened(path, root) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ToolError(f"Not a regular file (a device, pipe or socket): {path}")
            head = file.read(SNIFFED_BYTES)
            if head is None:
                raise ToolError(f"There is nothing to read in it now, as in a kernel log: {path}")
            if mime := attachment_mime(path, head):
                return _attachment_result(title, path, mime, head, file, status), None
            if is_binary(path, head):
                raise ToolError(f"Cannot read binary file: {path}")
            file.seek(0)
            return _page_result(title, _page(file, offset, limit), is_unsaved=False), Stamp.of(status)
    except (FileNotFoundError, NotADirectoryError) as error:
        may_list = ctx.sandbox_workspace.walls.admits(os.path.realpath(path.parent))
        raise ToolError(_not_found(path, root if may_list else None)) from error
    except IsADirectoryError as error:
        hint = "Use the list or glob tool to see what is in it."
        raise ToolError(f"Path is a directory, not a file: {path}. {hint}") from error
    except OSError as error:
        raise text_file.failure("read", path, error) from error


def _not_found(path: Path, root: Root | None) -> str:
    """Suggests files in the same directory whose name contains this one's name, or is contained in it. `root` None: the user may
    not see what is there, as in the directory of all users' outputs."""
    wanted = path.name.lower()
    try:
        names = sorted(names_in(path.parent, root)) if root else []
    except (OSError, ValueError):
        names = []  # the directory does not exist, cannot be read, or lies above the root
    similar = [str(path.parent / name) for name in names if wanted in name.lower() or name.lower() in wanted]
    hint = "\n\nDid you mean one of these?\n" + "\n".join(similar[:_SUGGESTIONS]) if similar else ""
    return f"File not found: {path}{hint}"


def _page(file: BinaryIO, offset: int, limit: int) -> _FilePage:
    before = _skip_lines(file, offset)
    if before < offset:
        return _FilePage([], offset, before + 1, cut_by_bytes=False)
    lines: list[str] = []
    used = -1
    for raw in _lines(file):
        if len(lines) == limit:
            return _FilePage(lines, offset, None, cut_by_bytes=False)
        line = _text(raw, is_first=offset + len(lines) == 0)
        used += 1 + len(line.encode())
        if used > MAX_BYTES:
            return _FilePage(lines, offset, None, cut_by_bytes=True)
        lines.append(line)
    return _FilePage(lines, offset, offset + len(lines), cut_by_bytes=False)


def _skip_lines(file: BinaryIO, count: int) -> int:
    """Skips up to `count` newlines; returns how many it found."""
    skipped = 0
    while skipped < count and (piece := file.read(_SKIP_BYTES)):
        _require_scannable(file)
        wanted = count - skipped
        newlines = piece.count(b"\n")
        if newlines >= wanted:
            rest = piece.split(b"\n", wanted)[-1]
            file.seek(-len(rest), os.SEEK_CUR)
            return count
        skipped += newlines
    return skipped


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines without their newline, long lines cut. The last one is the text after the last newline, even if it is empty.
    Needs no more memory than one buffer, whatever the file's size."""
    while line := file.readline(_LINE_BYTES):
        yield line.removesuffix(b"\n")
        if not line.endswith(b"\n") and not _skip_rest_of_line(file):
            return
    yield b""


def _skip_rest_of_line(file: BinaryIO) -> bool:
    """Whether a newline was found before the end of the file."""
    while piece := file.readline(_SKIP_BYTES):
        if piece.endswith(b"\n"):
            return True
        _require_scannable(file)
    return False


def _require_scannable(file: BinaryIO) -> None:
    """Limits the scan, because the thread that reads cannot be cancelled."""
    if file.tell() > MAX_SCANNED_BYTES:
        raise ToolError(f"That part lies more than {MAX_SCANNED_BYTES} bytes into the file: use the bash tool to get at it.")


def _text(raw: bytes, *, is_first: bool) -> str:
    text = raw.decode("utf-8", "replace")
    text = text.removeprefix("\ufeff") if is_first else text
    return text if len(text) <= MAX_LINE_CHARS else text[:MAX_LINE_CHARS] + "..."


def _attachment_result(title: str, path: Path, mime: str, head: bytes, file: BinaryIO, status: os.stat_result) -> ToolResult:
    if status.st_size > MAX_ATTACHMENT_BYTES:
        raise ToolError(f"File is too large to attach ({status.st_size} bytes, limit {MAX_ATTACHMENT_BYTES}): {path}")
    text = "PDF read successfully" if mime == "application/pdf" else "Image read successfully"
    url = f"data:{mime};base64,{base64.b64encode(head + file.read(MAX_ATTACHMENT_BYTES)).decode()}"
    return ToolResult(
        title=title,
        output=text,
        metadata={"preview": text, "truncated": False},
        attachments=[FileContent(mime=mime, url=url, filename=text_file.json_text(path.name))],
    )


def _page_result(title: str, page: _FilePage, *, is_unsaved: bool) -> ToolResult:
    numbered = [f"{number:05d}| {line}" for number, line in enumerate(page.lines, page.offset + 1)]
    output = "<file>\n" + "\n".join(numbered) + f"\n\n({_trailer(page)})\n</file>"
    if is_unsaved:
        output += "\n\n(The user's editor shows this, with changes that are not saved. The file can be changed once it is saved.)"
    return ToolResult(
        title=title,
        output=output,
        metadata={"preview": "\n".join(page.lines[:_PREVIEW_LINES]), "truncated": page.total is None},
    )


def _with_instructions(result: ToolResult, found: dict[str, str]) -> ToolResult:
    """Appends the instruction files of the directory."""
    if not found:
        return result
    blocks = "\n\n".join(f"Instructions from: {path}\n{text}" for path, text in found.items())
    output = f"{result.output}\n\n<system-reminder>\n{blocks}\n</system-reminder>"
    return replace(result, output=output, metadata={**result.metadata, "loaded": list(found)})


def _trailer(page: _FilePage) -> str:
    if page.total is not None:
        return f"End of file - total {page.total} lines"
    go_on = f"Use the 'offset' parameter to read beyond line {page.offset + len(page.lines)}"
    if page.cut_by_bytes:
        return f"Output was cut at {MAX_BYTES} bytes. {go_on}"
    return f"File has more lines. {go_on}"


def attachment_mime(path: Path, head: bytes) -> str | None:
    """The MIME type of an image or PDF; None for anything else. The first bytes take precedence over the name: providers reject a
    conversation with a wrongly labelled image."""
    by_name = _ATTACHED.get(_suffix(path))
    if by_name is None:
        return None
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((mime for start, mime in _SIGNATURES.items() if head.startswith(start)), by_name)


def is_binary(path: Path, head: bytes) -> bool:
    if _suffix(path) in _BINARY_SUFFIXES or b"\0" in head:
        return True
    unprintable = len(head) - len(head.translate(None, _UNPRINTABLE))
    return unprintable > _UNPRINTABLE_SHARE * len(head)


def _suffix(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")
