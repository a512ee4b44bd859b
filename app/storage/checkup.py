"""Checks a database for `opensession doctor`: damage, orphaned rows, unfinished answers."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import orjson
from sqlalchemy import Connection, Engine, delete, func, select, text, update

from app.storage import tables
from app.storage.bodies import parsed
from app.storage.engine import StorageError, hold_writer_lock, transaction, writer_lock
from app.storage.migrate import HEAD, revision, unknown_schema
from app.storage.repositories import lease_rows, webhook_rows
from app.storage.text_index import LACKS_FTS5, create_text_index, has_text_index, lacks_fts5
from app.storage.writer_lock import has_reset_bug
from app.util.finding import Finding

SUBJECT = "database"
_MAX_NAMED = 5


def check(engine: Engine) -> list[Finding]:
    try:
        with transaction(engine) as connection:
            return [*_library_findings(engine), *_findings(engine, connection)]
    except StorageError as error:
        return [Finding(SUBJECT, "fault", f"cannot be read: {getattr(error, 'orig', None) or error}. Restore a backup.")]


def _webhook_findings(connection: Connection) -> Iterator[Finding]:
    """Its owner knows the address; here it may be a secret."""
    failing = [
        row.id for row in webhook_rows.all_of(connection) if row.failed_since is not None or row.disabled_reason is not None
    ]
    if failing:
        named = ", ".join(failing[:_MAX_NAMED])
        text = f"{len(failing)} deliver nothing now ({named}): GET /webhook/ID says why, /webhook/ID/deliveries has the attempts"
        yield Finding("webhooks", "note", text)


def _library_findings(engine: Engine) -> Iterator[Finding]:
    if engine.dialect.name == "sqlite" and has_reset_bug():
        bug = f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug (fixed in 3.51.3). Servers work around it with a lock. "
        yield Finding(SUBJECT, "note", f"{bug}Another program must not write to the file while a server runs.")


def _findings(engine: Engine, connection: Connection) -> Iterator[Finding]:
    found = revision(connection)
    if found is None:
        yield Finding(SUBJECT, "note", "empty: the first start creates the tables")
        return
    if reason := unknown_schema(found):
        yield Finding(SUBJECT, "fault", reason)
        return
    if found != HEAD:
        yield Finding(SUBJECT, "note", f"at revision {found}, this version needs {HEAD}: the next start or `migrate` upgrades it")
        return
    checks = (_integrity_findings, _orphan_findings, _damage_findings)
    faults = [finding for check in checks for finding in check(engine, connection)]
    yield from faults
    yield from _open_message_findings(connection)
    yield from _search_findings(engine, connection)
    yield from _webhook_findings(connection)
    if not faults:
        yield Finding(SUBJECT, "fine", f"sound: {_count_rows(connection)}")


def _count_rows(connection: Connection) -> str:
    counted = {"sessions": tables.SESSION, "messages": tables.MESSAGE, "parts": tables.PART}
    counts = {name: connection.execute(select(func.count()).select_from(of)).scalar_one() for name, of in counted.items()}
    return ", ".join(f"{count} {name}" for name, count in counts.items())


def _integrity_findings(engine: Engine, connection: Connection) -> Iterator[Finding]:
    if engine.dialect.name != "sqlite":
        return
    problems = [row for row in connection.execute(text("PRAGMA integrity_check")).scalars() if row != "ok"]
    if problems:
        damaged = (
            f"the file is damaged ({'; '.join(problems[:_MAX_NAMED])}). Stop the server and restore a backup, or recover what "
        )
        yield Finding(SUBJECT, "fault", f"{damaged}is readable: sqlite3 opensession.db .recover | sqlite3 recovered.db")


def _orphan_findings(engine: Engine, connection: Connection) -> Iterator[Finding]:
    """Parts without a message and messages without a session. Foreign keys prevent them unless someone switched them off."""
    message, part, session = tables.MESSAGE, tables.PART, tables.SESSION
    owners = select(message.c.id).where(message.c.session_id == part.c.session_id, message.c.id == part.c.message_id)
    for of, without in ((message, message.c.session_id.not_in(select(session.c.id))), (part, ~owners.exists())):
        count = connection.execute(select(func.count()).select_from(of).where(without)).scalar_one()
        if count:
            statement = delete(of).where(without)
            text_ = f"{count} {of.name} rows belong to nothing"
            yield Finding(SUBJECT, "fault", text_, "delete them", partial(_write_all, engine, [statement]))


def _damage_findings(engine: Engine, connection: Connection) -> Iterator[Finding]:
    for of in (tables.MESSAGE, tables.PART):
        rows = [row for row in connection.execute(select(of.c.seq, of.c.id, of.c.body)) if parsed(row.body) is None]
        if rows:
            statement = delete(of).where(of.c.seq.in_([row.seq for row in rows]))
            text_ = f"{len(rows)} {of.name} rows are damaged: {_names(rows)}"
            yield Finding(SUBJECT, "fault", text_, "delete them", partial(_write_all, engine, [statement]))
    session = tables.SESSION
    rows = [row for row in connection.execute(select(session)) if parsed(row.body) is None]
    if rows:
        statements = [
            update(session).where(session.c.seq == row.seq).values(body=_session_body(row), reverting=False) for row in rows
        ]
        text_ = f"{len(rows)} session rows are damaged: {_names(rows)}"
        yield Finding(SUBJECT, "fault", text_, "make them anew from their columns", partial(_write_all, engine, statements))


def _session_body(row: Any) -> str:
    """A session body made from the row's columns."""
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


def _open_message_findings(connection: Connection) -> Iterator[Finding]:
    left = lease_rows.orphaned_messages(connection)
    if left:
        yield Finding(SUBJECT, "note", f"{len(left)} messages were left unfinished: the next start closes or answers them")


def _search_findings(engine: Engine, connection: Connection) -> Iterator[Finding]:
    if lacks_fts5(connection):
        yield Finding(SUBJECT, "fault", LACKS_FTS5)
    elif not has_text_index(connection):
        missing = "this SQLite has no FTS5" if engine.dialect.name == "sqlite" else "the extension pg_trgm was missing"
        text_ = f"searches in messages have no index ({missing} when the database was migrated): they read all texts"
        yield Finding(SUBJECT, "note", text_, "create the index", partial(_write, engine, create_text_index))


def _names(rows: Sequence[Any]) -> str:
    return ", ".join(row.id for row in rows[:_MAX_NAMED]) + (" …" if len(rows) > _MAX_NAMED else "")


def _write_all(engine: Engine, statements: Sequence[Any]) -> None:
    _write(engine, lambda connection: [connection.execute(statement) for statement in statements])


def _write(engine: Engine, work: Callable[[Connection], object]) -> None:
    lock = writer_lock(engine)
    with hold_writer_lock(lock), transaction(engine, writes=True) as connection:
        work(connection)
    if lock:
        lock.close()
