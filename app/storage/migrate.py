"""Brings a database to the newest schema: a new one is made with it, one of an older revision is migrated by Alembic, which is
imported for that only."""

import secrets
from pathlib import Path

from sqlalchemy import Connection, Engine, Table, inspect, text
from sqlalchemy.schema import CreateIndex, CreateTable

from app.storage.engine import DatabaseUnusable, hold_writer_lock, writer_lock
from app.storage.tables import COUNTER, METADATA
from app.storage.text_index import create_text_index

HEAD = "0018"
"""The newest revision in migrations/versions; a test compares them."""

_PACKAGED = Path(__file__).parents[1] / "_migrations"
_CHECKOUT = Path(__file__).parents[2] / "migrations"


def migrations_dir() -> Path:
    """Inside the package in an installed wheel, beside it in a checkout."""
    return _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT


def revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def require_current(engine: Engine) -> None:
    """Raises DatabaseUnusable unless the schema has the revision that this code needs."""
    with engine.begin() as connection:
        found = revision(connection)
    if found is None:
        raise DatabaseUnusable(
            "The database is empty: run `opensession migrate` with the same OPENSESSION_DATABASE_URL, then start again."
        )
    if found < HEAD:
        raise DatabaseUnusable(
            f"The database is at revision {found}, this server needs {HEAD}: stop the servers that use it, "
            "run `opensession migrate`, then start them again."
        )
    if found > HEAD:
        raise DatabaseUnusable(
            f"The database is at revision {found}, this server knows only {HEAD}: it needs a newer opensession."
        )


def upgrade(engine: Engine) -> None:
    """In one transaction. If two servers start at the same time, one of them does it."""
    with engine.connect() as connection, connection.begin():
        if revision(connection) == HEAD:
            return
    lock = writer_lock(engine)
    with hold_writer_lock(lock), engine.connect().execution_options(immediate=True) as connection, connection.begin():
        found = revision(connection)
        if found is None:
            _create(connection)
        elif found != HEAD:
            _run_alembic(connection)
    if lock:
        lock.close()


def _create(connection: Connection) -> None:
    """What all migrations would make, in a tenth of their time; a test compares them."""
    from app.storage.partial_indexes import declare_conditions

    declare_conditions(connection.dialect.name)
    for table in METADATA.sorted_tables:
        _create_table(connection, table)
    create_text_index(connection)
    counters = {"journal": 0, "identity": secrets.randbits(60), "unsearched_parts": 0}
    connection.execute(COUNTER.insert(), [{"name": name, "value": value} for name, value in counters.items()])
    key = "version_num VARCHAR(32) NOT NULL CONSTRAINT alembic_version_pkc PRIMARY KEY"
    connection.execute(text(f"CREATE TABLE alembic_version ({key})"))
    connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


def _create_table(connection: Connection, table: Table) -> None:
    """With its indexes in the order of their names: of two that serve a query alike, SQLite takes the one made last."""
    connection.execute(CreateTable(table))
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        connection.execute(CreateIndex(index))


def _run_alembic(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_dir()))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
