"""A copy of an SQLite database that is in use, and what a backup must know of a database."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from sqlalchemy import Connection

from app.storage.engine import make_engine
from app.storage.migrate import revision, upgrade
from app.storage.repositories.lease_rows import replicas

PAGES_AT_ONCE = 2_000
_FIRST_WITH_SERVERS = "0009"


def copy_database(connection: Connection, target: Path, progress: Callable[[int, int], None]) -> str | None:
    """What is committed when it begins; others go on writing. Returns its revision. `progress` is told pages: done, of all."""
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
    """Whether a server of this PostgreSQL has written its heartbeat since."""
    found = revision(connection)
    if found is None or found < _FIRST_WITH_SERVERS:
        return False
    return any(row.age <= dead_after_ms for row in replicas(connection))
