"""The index of trigrams of `part_text`: in SQLite an FTS5 table that triggers keep, in PostgreSQL a partial index of pg_trgm.

It takes a text when its row's `indexed` is set, loses it when the row goes or `indexed` is unset. FTS5 holds no text, only which
trigrams occur where: an eighth of the work of one with positions, and the text itself is there to be compared. Where FTS5 or
pg_trgm is missing there is no index, and searches read the texts.
"""

import logging

from sqlalchemy import Connection, inspect, text
from sqlalchemy.exc import DBAPIError, OperationalError

LACKS_FTS5 = (
    "the SQLite of this Python has no FTS5, which the database's search index was made with: parts that are in it can be neither "
    "changed nor deleted. Run the server with a Python whose SQLite has FTS5."
)

log = logging.getLogger(__name__)

FTS = "part_text_fts"
TRIGRAMS = "part_text_trigrams"

_FACETED = "char(2) || substr({row}.role, 1, 1) || substr({row}.kind, 1, 1) || char(10) || {row}.text"
"""The text with a trigram before it that says its role and kind."""

_PUT = f"INSERT INTO {FTS}(rowid, text) VALUES (new.part_seq, {_FACETED.format(row='new')});"
_REMOVE = f"INSERT INTO {FTS}({FTS}, rowid, text) VALUES ('delete', old.part_seq, {_FACETED.format(row='old')});"
_TRIGGERS = ("part_text_index", "part_text_unindex", "part_text_delete")
_SQLITE = (
    "UPDATE part_text SET indexed = 0 WHERE indexed",
    f"CREATE VIRTUAL TABLE {FTS} USING fts5(text, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1')",
    f"CREATE TRIGGER part_text_index AFTER UPDATE ON part_text WHEN new.indexed AND NOT old.indexed BEGIN {_PUT} END",
    f"CREATE TRIGGER part_text_unindex AFTER UPDATE ON part_text WHEN old.indexed AND NOT new.indexed BEGIN {_REMOVE} END",
    f"CREATE TRIGGER part_text_delete AFTER DELETE ON part_text WHEN old.indexed BEGIN {_REMOVE} END",
)
_POSTGRES = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    f"CREATE INDEX IF NOT EXISTS {TRIGRAMS} ON part_text USING gin (text gin_trgm_ops) WITH (fastupdate = off) WHERE indexed",
)


def create_text_index(connection: Connection) -> bool:
    """False where the database cannot have one. It takes all texts anew."""
    statements = _SQLITE if connection.dialect.name == "sqlite" else _POSTGRES
    try:
        with connection.begin_nested():
            for statement in statements:
                connection.exec_driver_sql(statement)
    except DBAPIError as error:
        log.warning("searches in messages have no index: %s", error.orig)
        return False
    return True


def drop_text_index(connection: Connection) -> None:
    if not _is_sqlite(connection):
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {TRIGRAMS}")
        return
    for trigger in _TRIGGERS:
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {trigger}")
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {FTS}")


def has_text_index(connection: Connection) -> bool:
    if _is_sqlite(connection):
        return _is_there(connection) and not lacks_fts5(connection)
    return any(index["name"] == TRIGRAMS for index in inspect(connection).get_indexes("part_text"))


def lacks_fts5(connection: Connection) -> bool:
    """Whether the index was made by another SQLite and this one cannot open it. Then no part that is in it can be changed or
    removed, and searches read the texts."""
    if not _is_sqlite(connection) or not _is_there(connection):
        return False
    try:
        connection.exec_driver_sql(f"SELECT rowid FROM {FTS} LIMIT 0")
    except OperationalError as error:
        if "no such module" in str(error.orig):
            return True
        raise
    return False


def _is_there(connection: Connection) -> bool:
    query = text("SELECT count(*) FROM sqlite_master WHERE name = :name")
    return bool(connection.execute(query, {"name": FTS}).scalar_one())


def facets(roles: list[str], kinds: list[str]) -> list[str]:
    """The trigrams that say one of these roles and one of these kinds."""
    return [f"\2{role[0]}{kind[0]}" for role in roles for kind in kinds]


def _is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"
