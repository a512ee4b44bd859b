"""Looks a database over: damage, rows that belong to nothing, answers left open."""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import orjson
from sqlalchemy import Connection, Engine, delete, func, select, text, update

from app.storage import queries, tables
from app.storage.bodies import is_sound
from app.storage.engine import StorageError, hold_writer_lock, writer_lock
from app.storage.migrate import HEAD, revision
from app.storage.writer_lock import has_reset_bug
from app.util.finding import Finding

SUBJECT = "database"
_FEW = 5


def check(engine: Engine) -> list[Finding]:
    try:
        with engine.connect() as connection, connection.begin():
            return [*_library(engine), *_findings(engine, connection)]
    except StorageError as error:
        return [Finding(SUBJECT, "fault", f"it cannot be read: {getattr(error, 'orig', None) or error}. Restore a backup.")]


def _library(engine: Engine) -> Iterator[Finding]:
    if engine.dialect.name == "sqlite" and has_reset_bug():
        yield Finding(
            SUBJECT,
            "note",
            f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug (fixed in 3.51.3); safe here: servers write and checkpoint "
            "in turns. Another program must not write to the file while a server runs.",
        )


def _findings(engine: Engine, connection: Connection) -> Iterator[Finding]:
    found = revision(connection)
    if found is None:
        yield Finding(SUBJECT, "note", "empty: the first start prepares it")
        return
    if found != HEAD:
        yield Finding(SUBJECT, "note", f"at revision {found}, this program's is {HEAD}: the next start or `migrate` sees to it")
        return
    checks = [*_integrity(engine, connection), *_orphans(engine, connection), *_damaged(engine, connection)]
    yield from checks
    yield from _left_open(connection)
    if not checks:
        yield Finding(SUBJECT, "fine", f"sound: {_counted(connection)}")


def _counted(connection: Connection) -> str:
    counted = {"sessions": tables.SESSION, "messages": tables.MESSAGE, "parts": tables.PART}
    counts = {name: connection.execute(select(func.count()).select_from(of)).scalar_one() for name, of in counted.items()}
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _integrity(engine: Engine, connection: Connection) -> Iterator[Finding]:
    if engine.dialect.name != "sqlite":
        return
    problems = [row for row in connection.execute(text("PRAGMA integrity_check")).scalars() if row != "ok"]
    if problems:
        yield Finding(
            SUBJECT,
            "fault",
            f"the file is damaged ({'; '.join(problems[:_FEW])}). Stop the server and restore a backup, or save what can be "
            "read: sqlite3 opensession.db .recover | sqlite3 recovered.db",
        )


def _orphans(engine: Engine, connection: Connection) -> Iterator[Finding]:
    """Parts of no message, and messages of no session, which foreign keys rule out unless somebody switched them off."""
    message, part, session = tables.MESSAGE, tables.PART, tables.SESSION
    owners = select(message.c.id).where(message.c.session_id == part.c.session_id, message.c.id == part.c.message_id)
    for of, without in ((message, message.c.session_id.not_in(select(session.c.id))), (part, ~owners.exists())):
        count = connection.execute(select(func.count()).select_from(of).where(without)).scalar_one()
        if count:
            statement = delete(of).where(without)
            text_ = f"{count} {of.name} rows belong to nothing"
            yield Finding(SUBJECT, "fault", text_, "delete them", partial(_write, engine, [statement]))


def _damaged(engine: Engine, connection: Connection) -> Iterator[Finding]:
    for of in (tables.MESSAGE, tables.PART):
        rows = [row for row in connection.execute(select(of.c.seq, of.c.id, of.c.body)) if not is_sound(row.body)]
        if rows:
            statement = delete(of).where(of.c.seq.in_([row.seq for row in rows]))
            text_ = f"{len(rows)} {of.name} rows are damaged: {_names(rows)}"
            yield Finding(SUBJECT, "fault", text_, "delete them", partial(_write, engine, [statement]))
    session = tables.SESSION
    rows = [row for row in connection.execute(select(session)) if not is_sound(row.body)]
    if rows:
        statements = [
            update(session).where(session.c.seq == row.seq).values(body=_session_body(row), reverting=False) for row in rows
        ]
        text_ = f"{len(rows)} session rows are damaged: {_names(rows)}"
        yield Finding(SUBJECT, "fault", text_, "make them anew from their columns", partial(_write, engine, statements))


def _session_body(row: Any) -> str:
    """What the columns still tell. The rest of the session is in its messages."""
    body = {
        "id": row.id,
        "slug": "mended-session",
        "projectID": row.project_id,
        "directory": row.directory,
        "title": row.title_folded,
        "version": "mended",
        "time": {"created": row.updated, "updated": row.updated},
    }
    return orjson.dumps({**body, "parentID": row.parent_id} if row.parent_id else body).decode()


def _left_open(connection: Connection) -> Iterator[Finding]:
    left = queries.abandoned_messages(connection)
    if left:
        yield Finding(SUBJECT, "note", f"{len(left)} messages were left unfinished: the next start closes or answers them")


def _names(rows: Sequence[Any]) -> str:
    return ", ".join(row.id for row in rows[:_FEW]) + (" …" if len(rows) > _FEW else "")


def _write(engine: Engine, statements: Sequence[Any]) -> None:
    turns = writer_lock(engine)
    with hold_writer_lock(turns), engine.execution_options(immediate=True).begin() as connection:
        for statement in statements:
            connection.execute(statement)
    if turns:
        turns.close()
