"""The commands `opensession export` and `import`."""

import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote
from uuid import uuid4

import typer

from app.cli.attach import Attach, Where, with_server
from app.cli.support import fail, settings
from app.tool.web.pinned import PinnedRequests

if TYPE_CHECKING:
    from app.api_client.client import ApiClient


class ExportFormat(StrEnum):
    JSON = "json"
    MARKDOWN = "markdown"


class ImportedIds(StrEnum):
    KEEP = "keep"
    NEW = "new"


ExportedSession = Annotated[str, typer.Argument(metavar="SESSION", help="Its id; `opensession session list` shows it.")]
WithChildren = Annotated[bool, typer.Option("--children", help="With all its descendants: the sessions of subagents.")]
ExportForm = Annotated[ExportFormat, typer.Option("--format", help="markdown: for people, not to be imported.")]
OutputFile = Annotated[Path | None, typer.Option(help="File to write, once the export is complete; standard output if absent.")]
DocumentSource = Annotated[
    str, typer.Argument(metavar="FILE|-|URL", help="`-` is standard input; the address is that of a document, or a share link.")
]
IdsOption = Annotated[ImportedIds, typer.Option("--ids", help="new: other ids for all sessions, messages and parts.")]


def export(
    session_id: ExportedSession,
    children: WithChildren = False,
    form: ExportForm = ExportFormat.JSON,
    output: OutputFile = None,
    attach: Attach = None,
    where: Where = None,
) -> None:
    """Write a session as one document, as it is at this moment, in the shape of `opencode export`."""

    async def write(api: "ApiClient") -> None:
        path = f"/session/{quote(session_id, safe='')}/export"
        async with aclosing(api.download(path, children=str(children).lower(), format=form.value)) as pieces:
            await (_write_file(pieces, output.expanduser().resolve()) if output else _write_stdout(pieces))

    try:
        with_server(attach, where, write)
    except BrokenPipeError:
        raise  # whoever read it has read enough
    except OSError as error:
        fail(f"{output or 'Standard output'} cannot be written: {error.strerror or error}")


async def _write_stdout(pieces: AsyncIterator[bytes]) -> None:
    async for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


async def _write_file(pieces: AsyncIterator[bytes], path: Path) -> None:
    """A file that is there is replaced by the complete export or stays as it is."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            async for piece in pieces:
                file.write(piece)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def import_document(
    source: DocumentSource, new_ids: IdsOption = ImportedIds.KEEP, attach: Attach = None, where: Where = None
) -> None:
    """Store an export, of `opensession export` or `opencode export`, in this directory: all of it or nothing."""
    from app.transfer.importing import UnreadableSource

    async def store(api: "ApiClient") -> Any:
        return await api.upload("/session/import", await _document(source), ids=new_ids.value)

    try:
        imported = with_server(attach, where, store)
    except UnreadableSource as unreadable:
        fail(str(unreadable))
    for note in imported["notes"]:
        typer.echo(note, err=True)
    below = len(imported["sessions"]) - 1
    typer.echo(f"Imported session: {imported['info']['id']}{f' and {below} below it' if below else ''}")


async def _document(source: str) -> bytes:
    from app.transfer.importing import read_source

    given = settings()
    requests = PinnedRequests(allow_private=given.allow_private_addresses)
    return await read_source(source, requests, given.max_import_bytes)
