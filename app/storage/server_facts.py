"""Facts about the database's server, for people."""

import sqlite3
import time

from sqlalchemy import select, text

from app.storage.engine import Connection
from app.storage.repositories.lease_rows import now_ms


def product(connection: Connection) -> str:
    """Name, version and address, without a login."""
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
    """Of PostgreSQL: a standby, or a database or user that is set so."""
    return bool(connection.execute(text("SELECT current_setting('transaction_read_only')::boolean")).scalar_one())


def free_connections(connection: Connection) -> int:
    """Of PostgreSQL: how many more it takes from users without privileges."""
    allowed = "current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int"
    used = "(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')"
    return int(connection.execute(text(f"SELECT {allowed} - {used}")).scalar_one())


def clock_ahead_seconds(connection: Connection) -> float:
    """How far the database's clock is ahead of this machine's, give or take the time of one query."""
    asked = time.time()
    there = int(connection.execute(select(now_ms(connection.dialect.name))).scalar_one()) / 1000
    return there - (asked + time.time()) / 2
