"""Brings a database to the newest schema: a new one is made with it, an older one is migrated. Alembic is imported for either,
and not to open a database that is current."""

import secrets
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, inspect, text

from app import __version__
from app.record.engine import DatabaseUnusable, single_write, transaction
from app.record.tables import COUNTER, METADATA
from app.record.text_search import LACKS_FTS5, create_text_index, lacks_fts5

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0023"
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


def _usable_revision(engine: Engine) -> str | None:
    """None for an empty database. Raises DatabaseUnusable for a schema that this version does not know, and if this SQLite cannot
    open its text index."""
    with transaction(engine) as connection:
        if lacks_fts5(connection):
            raise DatabaseUnusable(LACKS_FTS5)
        found = revision(connection)
    if found not in (None, HEAD) and (reason := unknown_schema(found)):
        raise DatabaseUnusable(reason)
    return found


def require_current(engine: Engine) -> None:
    """Raises DatabaseUnusable unless the schema has the revision that this code needs."""
    found = _usable_revision(engine)
    if found is None:
        raise DatabaseUnusable(
            f"The database {engine.url.database} is empty: run `opensession migrate` with the same OPENSESSION_DATABASE_URL, "
            "then start again."
        )
    if found != HEAD:
        raise DatabaseUnusable(
            f"The database is at revision {found}, this server needs {HEAD}: stop the servers that use it, "
            "run `opensession migrate`, then start them again."
        )


def known_revisions() -> set[str]:
    return {file.name.partition("_")[0] for file in (migrations_dir() / "versions").glob("[0-9]*.py")}


def unknown_schema(found: str) -> str | None:
    """The message about a revision that this version cannot migrate; None for one that it can."""
    if found > HEAD:
        return f"The database is at revision {found}, opensession {__version__} knows only {HEAD}: it needs a newer opensession."
    if found not in known_revisions():
        return f"The database is at revision {found}, which no version of opensession has. That of {__version__} is {HEAD}."
    return None


def upgrade(engine: Engine) -> None:
    """Migrates in one transaction. Of two servers that start at the same time, one does it. Raises DatabaseUnusable."""
    found = _usable_revision(engine)
    if found == HEAD:
        return
    import_module("alembic.command")  # takes long, and PostgreSQL ends a transaction that is idle meanwhile
    with single_write(engine) as connection:
        if revision(connection) is None:
            _create(connection)
        else:
            _migrate(connection)


def _migrate(connection: Connection) -> None:
    from alembic import command

    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")  # Alembic computes between statements
    command.upgrade(_alembic(connection), HEAD)


def _create(connection: Connection) -> None:
    """Makes what all migrations would make; a test compares them."""
    from alembic import command

    METADATA.create_all(connection, checkfirst=False)
    create_text_index(connection)
    counters = {"journal": 0, "identity": secrets.randbits(60)}
    connection.execute(COUNTER.insert(), [{"name": name, "value": value} for name, value in counters.items()])
    command.stamp(_alembic(connection), HEAD)


def _alembic(connection: Connection) -> "Config":
    """Alembic's configuration, for work in the connection's transaction."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations_dir()))
    config.attributes["connection"] = connection
    return config
