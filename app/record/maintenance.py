"""An operator's work on a database: checks for `opensession doctor` (damage, unfinished answers), facts about its server, and
copies for backups."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from sqlalchemy import Engine, func, select, text
from sqlalchemy.exc import OperationalError

from app.record import tables
from app.record.engine import Connection, StorageError, has_reset_bug, make_engine, single_write, transaction, words_of
from app.record.migrate import HEAD, revision, unknown_schema, upgrade
from app.record.repositories import webhook_rows, work_rows
from app.record.repositories.work_rows import now_ms, replicas
from app.record.tables import parsed
from app.record.text_search import LACKS_FTS5, create_text_index, has_text_index, lacks_fts5

Level = Literal["fine", "note", "fault"]
"""`note`: worth knowing, but nothing is wrong."""


@dataclass(frozen=True)
class Finding:
    """`repair` describes how a fault is repaired and `act` repairs it. Without them, the user must repair it."""

    subject: str
    level: Level
    text: str
    repair: str | None = None
    act: Callable[[], object] | None = None


def describe_database(connection: Connection) -> str:
    """Name, version and address of the database's server, without a login."""
    url = connection.engine.url
    if connection.dialect.name == "sqlite":
        return f"SQLite {sqlite3.sqlite_version}, {url.database}"
    version = connection.execute(text("SHOW server_version")).scalar_one().split()[0]
    return f"PostgreSQL {version} at {url.host or 'localhost'}:{url.port or 5432}/{url.database or ''}"


def database_bytes(connection: Connection) -> int:
    """The bytes in use, of the whole database."""
    if connection.dialect.name == "sqlite":
        pages = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
        return int(connection.execute(text(pages)).scalar_one())
    return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())


def is_read_only(connection: Connection) -> bool:
    """Whether PostgreSQL is a standby, or the database or user is set to read only."""
    return bool(connection.execute(text("SELECT current_setting('transaction_read_only')::boolean")).scalar_one())


def free_connections(connection: Connection) -> int:
    """How many more connections PostgreSQL takes from users without privileges."""
    allowed = "current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
    used = "(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')"
    return int(connection.execute(text(f"SELECT {allowed} - {used}")).scalar_one())


def clock_ahead_seconds(connection: Connection) -> float:
    """How far the database's clock is ahead of this machine's, give or take the time of one query."""
    before = time.time()
    database_time = int(connection.execute(select(now_ms(connection.dialect.name))).scalar_one()) / 1000
    return database_time - (before + time.time()) / 2


# A copy of an SQLite database that is in use, and the facts that a backup needs of a database.

PAGES_AT_ONCE = 2_000
_FIRST_WITH_SERVERS = "0009"


def copy_database(connection: Connection, target: Path, progress: Callable[[int, int], None]) -> str | None:
    """Copies what is committed when it begins, while others go on writing. Returns the copy's revision. `progress` is called with
    the numbers of pages: done, and in all."""
    found = revision(connection)  # the transaction's first read: without one, SQLite would begin again with each commit
    source = connection.connection.driver_connection
    assert isinstance(source, sqlite3.Connection)
    with closing(sqlite3.connect(target)) as copy:
        source.backup(copy, pages=PAGES_AT_ONCE, progress=lambda _, left, total: progress(total - left, total), sleep=0)
    return found


def upgrade_file(path: Path) -> None:
    """Upgrades an SQLite database that nobody else has open, and leaves no other file beside it."""
    engine = make_engine(f"sqlite:///{path}")
    upgrade(engine)
    engine.dispose()
    path.with_name(f"{path.name}-writer").unlink(missing_ok=True)


def has_server(connection: Connection, dead_after_ms: int) -> bool:
    """Whether a server of this PostgreSQL has written its heartbeat in the last `dead_after_ms`."""
    found = revision(connection)
    if found is None or found < _FIRST_WITH_SERVERS:
        return False
    return any(row.age <= dead_after_ms for row in replicas(connection))


SUBJECT = "database"
_MAX_NAMED = 5


def check(engine: Engine) -> list[Finding]:
    try:
        with transaction(engine) as connection:
            return list(_findings(engine, connection))
    except StorageError as error:
        advice = "" if isinstance(error, OperationalError) else " Restore a backup."
        return [Finding(SUBJECT, "fault", f"cannot be read: {words_of(error)}.{advice}")]


def _webhook_findings(connection: Connection) -> Iterator[Finding]:
    """Names no address: the owner knows it, and here it may be a secret."""
    failing = [
        row.id for row in webhook_rows.all_of(connection) if row.failed_since is not None or row.disabled_reason is not None
    ]
    if failing:
        named = ", ".join(failing[:_MAX_NAMED])
        text = f"{len(failing)} deliver nothing now ({named}): GET /webhook/ID says why, /webhook/ID/deliveries has the attempts"
        yield Finding("webhooks", "note", text)


def _findings(engine: Engine, connection: Connection) -> Iterator[Finding]:
    if engine.dialect.name == "sqlite" and has_reset_bug():
        bug = f"SQLite {sqlite3.sqlite_version} has the WAL-reset bug (fixed in 3.51.3). Servers work around it with a lock. "
        yield Finding(SUBJECT, "note", f"{bug}Another program must not write to the file while a server runs.")
    found = revision(connection)
    if found is None:
        own = "`opensession migrate` does for a database that OPENSESSION_DATABASE_URL names"
        yield Finding(SUBJECT, "note", f"{engine.url.database} is empty: the first start creates the tables; {own}")
        return
    if reason := unknown_schema(found):
        yield Finding(SUBJECT, "fault", reason)
        return
    if found != HEAD:
        yield Finding(SUBJECT, "note", f"at revision {found}, this version needs {HEAD}: the next start or `migrate` upgrades it")
        return
    faults = [*_integrity_findings(connection), *_damage_findings(connection)]
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


def _integrity_findings(connection: Connection) -> Iterator[Finding]:
    if connection.dialect.name != "sqlite":
        return
    problems = [row for row in connection.execute(text("PRAGMA integrity_check")).scalars() if row != "ok"]
    if problems:
        damaged = (
            f"the file is damaged ({'; '.join(problems[:_MAX_NAMED])}). Stop the server and restore a backup, or recover what "
        )
        yield Finding(SUBJECT, "fault", f"{damaged}is readable: sqlite3 opensession.db .recover | sqlite3 recovered.db")


def _damage_findings(connection: Connection) -> Iterator[Finding]:
    for of in (tables.SESSION, tables.MESSAGE, tables.PART):
        rows = [row.id for row in connection.execute(select(of.c.id, of.c.body)) if parsed(row.body) is None]
        if rows:
            named = ", ".join(rows[:_MAX_NAMED]) + (" …" if len(rows) > _MAX_NAMED else "")
            yield Finding(SUBJECT, "fault", f"{len(rows)} {of.name} rows are damaged and left out: {named}. A backup has them")


def _open_message_findings(connection: Connection) -> Iterator[Finding]:
    left = work_rows.orphaned_messages(connection)
    if left:
        yield Finding(SUBJECT, "note", f"{len(left)} messages were left unfinished: the next start closes or answers them")


def _search_findings(engine: Engine, connection: Connection) -> Iterator[Finding]:
    if lacks_fts5(connection):
        yield Finding(SUBJECT, "fault", LACKS_FTS5)
    elif not has_text_index(connection):
        missing = "this SQLite has no FTS5" if engine.dialect.name == "sqlite" else "the extension pg_trgm was missing"
        text_ = f"searches in messages have no index ({missing} when the database was migrated): they read all texts"
        yield Finding(SUBJECT, "note", text_, "create the index", partial(_add_text_index, engine))


def _add_text_index(engine: Engine) -> None:
    with single_write(engine) as connection:
        create_text_index(connection)
