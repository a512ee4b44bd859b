"""The index of trigrams of `part_text`: in SQLite an FTS5 table that triggers keep, in PostgreSQL an index of pg_trgm.

FTS5 holds no text, only which trigrams occur where: an eighth of the work of one with positions, and the text itself is there to
be compared. PostgreSQL puts what is new on a list, which searches read too; it goes into the index later, many texts at once: in
their commits that would hold other servers up. Where FTS5 or pg_trgm is missing there is no index, and searches read the texts.
"""

import asyncio
import logging
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

from app.storage.engine import Database

LACKS_FTS5 = (
    "the SQLite of this Python has no FTS5, which the database's search index was made with: no message can be stored. "
    "Run the server with a Python whose SQLite has FTS5."
)

log = logging.getLogger(__name__)

FTS = "part_text_fts"
TRIGRAMS = "part_text_trigrams"

_FACETED = "char(2) || substr({row}.role, 1, 1) || substr({row}.kind, 1, 1) || char(10) || {row}.text"
"""The text with a trigram before it that says its role and kind."""

_PUT = f"INSERT INTO {FTS}(rowid, text) VALUES (new.part_seq, {_FACETED.format(row='new')});"
_REMOVE = f"INSERT INTO {FTS}({FTS}, rowid, text) VALUES ('delete', old.part_seq, {_FACETED.format(row='old')});"
_TRIGGERS = {
    "part_text_put": f"AFTER INSERT ON part_text BEGIN {_PUT} END",
    "part_text_change": f"AFTER UPDATE OF role, kind, text ON part_text BEGIN {_REMOVE} {_PUT} END",
    "part_text_delete": f"AFTER DELETE ON part_text BEGIN {_REMOVE} END",
}
_SQLITE = (
    f"CREATE VIRTUAL TABLE {FTS} USING fts5(text, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1')",
    f"INSERT INTO {FTS}(rowid, text) SELECT part_seq, {_FACETED.format(row='part_text')} FROM part_text",
    *(f"CREATE TRIGGER {name} {does}" for name, does in _TRIGGERS.items()),
)
_POSTGRES_INDEX = f"{TRIGRAMS} ON part_text USING gin (text gin_trgm_ops)"
_POSTGRES = ("CREATE EXTENSION IF NOT EXISTS pg_trgm", f"CREATE INDEX {_POSTGRES_INDEX}")

_HAS_TRIGRAMS = f"SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('{TRIGRAMS}') AND indisvalid"
_HAS_EXTENSION = "SELECT count(*) FROM pg_extension WHERE extname = 'pg_trgm'"
_HAS_FTS = f"SELECT count(*) FROM sqlite_master WHERE name = '{FTS}'"


def create_text_index(connection: Connection) -> bool:
    """Of the texts that there are. False where the database cannot have one."""
    try:
        with connection.begin_nested():
            for statement in _SQLITE if _is_sqlite(connection) else _POSTGRES:
                connection.exec_driver_sql(statement)
    except DBAPIError as error:
        log.warning("searches in messages have no index: %s", error.orig)
        return False
    return True


def has_text_index(connection: Connection) -> bool:
    if _is_sqlite(connection):
        return _counts(connection, _HAS_FTS)
    return _counts(connection, _HAS_TRIGRAMS)


def lacks_fts5(connection: Connection) -> bool:
    """Whether the index was made by another SQLite and this one cannot open it: then nothing that has a text can be stored."""
    if not _is_sqlite(connection) or not _counts(connection, _HAS_FTS):
        return False
    try:
        connection.exec_driver_sql(f"SELECT rowid FROM {FTS} LIMIT 0")
    except OperationalError as error:
        if "no such module" in str(error.orig):
            return True
        raise
    return False


def facets(roles: list[str], kinds: list[str]) -> list[str]:
    """The trigrams that say one of these roles and one of these kinds."""
    return [f"\2{role[0]}{kind[0]}" for role in roles for kind in kinds]


async def tidy_trigrams(database: Database) -> None:
    """PostgreSQL's, apart from the transactions that writers wait for: makes the index of a large database that was migrated, or
    puts the newest texts into it. By one server at a time."""
    if database.dialect == "sqlite":
        return
    async with database.locks.lock("search index"):
        connection = await asyncio.to_thread(database.engine.execution_options(isolation_level="AUTOCOMMIT").connect)
        driver: Any = connection.connection.driver_connection
        try:
            await asyncio.to_thread(_tidy, connection)
        except asyncio.CancelledError:
            await asyncio.to_thread(driver.cancel)  # a server that stops does not wait for it
            raise


def _tidy(connection: Connection) -> None:
    with connection:
        if not _counts(connection, _HAS_EXTENSION):
            return
        if _counts(connection, _HAS_TRIGRAMS):
            connection.exec_driver_sql(f"SELECT gin_clean_pending_list('{TRIGRAMS}')")
            return
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {TRIGRAMS}")  # one that could not be finished
        connection.exec_driver_sql(f"CREATE INDEX CONCURRENTLY {_POSTGRES_INDEX}")


def _counts(connection: Connection, query: str) -> bool:
    return bool(connection.exec_driver_sql(query).scalar_one())


def _is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"
