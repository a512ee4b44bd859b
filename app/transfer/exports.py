"""Writes sessions as documents, or as Markdown for people, in pieces.

The whole answer is written to a file without a name from one read transaction before the first piece is sent: it shows one
moment, takes no memory however long the session is, and a slow client holds neither the database nor its log back.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import IO, Literal

import orjson
from pydantic import TypeAdapter

from app.record import tables
from app.record.engine import Connection
from app.record.repositories import message_rows, session_rows
from app.schema.errors import ServiceError, SessionNotFound
from app.schema.session import FileDiff, Session
from app.sessions import rows
from app.sessions.store import Store
from app.transfer import markdown

DocumentFormat = Literal["json", "markdown"]
Form = Callable[[Connection, Sequence[Session]], Iterator[bytes]]
"""Writes a session and its descendants."""

_DIFFS: TypeAdapter[list[FileDiff]] = TypeAdapter(list[FileDiff])

PIECE_BYTES = 256 * 1024
PAGE_MESSAGES = 20
"""How many messages are in memory at a time."""


class NoRoomToExport(ServiceError):
    status = 507
    name = "StorageQuotaError"
    text = "The disk of the data directory has no room for the export. Nothing was written."


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A temporary file, which `pieces` closes."""

    file: IO[bytes]
    size: int

    async def pieces(self) -> AsyncIterator[bytes]:
        with self.file:
            while piece := await asyncio.to_thread(self.file.read, PIECE_BYTES):
                yield piece


async def export_session(store: Store, directory: Path, session_id: str, form: DocumentFormat, *, children: bool) -> ExportedFile:
    """The session as it is now, with all its descendants if `children`. `directory`: where a temporary file may be made. Raises
    NotFound, NoRoomToExport."""
    await store.barrier()
    try:
        return await store.query(_write, directory, session_id, _json if form == "json" else _markdown, children)
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):
            raise NoRoomToExport from error
        raise


def _write(connection: Connection, directory: Path, session_id: str, form: Form, children: bool) -> ExportedFile:
    sessions = _sessions(connection, session_id, children)
    file = tempfile.TemporaryFile(dir=directory)  # noqa: SIM115  whoever sends it closes it
    try:
        file.writelines(form(connection, sessions))
        size = file.tell()
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return ExportedFile(file, size)


def _sessions(connection: Connection, session_id: str, children: bool) -> list[Session]:
    """The session, then its descendants: parents first, the children of each parent oldest first."""
    tree = session_rows.session_tree(connection, session_id)
    if not tree:
        raise SessionNotFound(session_id)
    found = [rows.read_session(session_id, row) for row in (tree if children else tree[-1:])]
    # The owner and the share link belong to this server.
    *others, root = [each.model_copy(update={"owner": None, "share": None}) for each in found]
    ordered, of_generation = [root], {root.id}
    while generation := [each for each in others if each.parent_id in of_generation]:
        ordered.extend(generation)
        of_generation = {each.id for each in generation}
    return ordered


def _json(connection: Connection, sessions: Sequence[Session]) -> Iterator[bytes]:
    root, *children = sessions
    yield from _history(connection, root)
    separator = b',"children":['
    for child in children:
        yield separator
        yield from _history(connection, child)
        yield b"}"
        separator = b","
    yield b"]}" if children else b"}"


def _history(connection: Connection, session: Session) -> Iterator[bytes]:
    """Without the closing brace."""
    yield b'{"info":%b,"messages":[' % session.wire_json()
    separator = b""
    for page in message_rows.history_pages(connection, session.id, PAGE_MESSAGES):
        for message in rows.message_values(session.id, page):
            yield separator + orjson.dumps(message)
            separator = b","
    yield b"]"
    for name, table in ((b"todo", tables.TODO), (b"diff", tables.DIFF)):
        body = session_rows.body_of(connection, table, session.id)
        yield b',"%b":%b' % (name, body.encode() if body else b"[]")


def _markdown(connection: Connection, sessions: Sequence[Session]) -> Iterator[bytes]:
    for session in sessions:
        yield markdown.heading(session).encode()
        for page in message_rows.history_pages(connection, session.id, PAGE_MESSAGES):
            for message in rows.read_messages(session.id, page):
                yield markdown.message(message).encode()
        body = session_rows.body_of(connection, tables.DIFF, session.id)
        yield markdown.diffs(_DIFFS.validate_json(body) if body else []).encode()
