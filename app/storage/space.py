"""Giving the space of deleted rows back to the file system.

PostgreSQL's autovacuum does so by itself. SQLite does in steps, if its file is in the mode for it: files made by earlier versions
are switched by one VACUUM, which keeps everybody else from writing while it lasts."""

from contextlib import closing
from typing import Any

from sqlalchemy import Connection, Engine

from app.storage.engine import Database, hold_writer_lock, make_engine, writer_lock

STEP_PAGES = 256
"""Pages that one transaction gives back: a megabyte."""

_INCREMENTAL = 2


async def give_back(database: Database) -> None:
    """Between the steps other changes are written."""
    while database.dialect == "sqlite" and await database.write(_give_back_some):
        pass


def gives_back(connection: Connection) -> bool:
    return connection.dialect.name != "sqlite" or _pragma(connection, "auto_vacuum") == _INCREMENTAL


def switch_if_needed(url: str) -> None:
    """With no server at work: one that writes meanwhile would wait for it, longer than it can."""
    engine = make_engine(url)
    with engine.connect() as connection:
        needed = not gives_back(connection)
    if needed:
        switch(engine)
    engine.dispose()


def switch(engine: Engine) -> None:
    """Takes as much room on the disk as the file has."""
    lock = writer_lock(engine)
    with hold_writer_lock(lock), closing(engine.raw_connection()) as connection:
        connection.cursor().execute(f"PRAGMA auto_vacuum={_INCREMENTAL}")
        connection.cursor().execute("VACUUM")
    if lock:
        lock.close()


def _give_back_some(connection: Connection) -> bool:
    """Whether more is left."""
    free = _pragma(connection, "freelist_count")
    if not free or not gives_back(connection):
        return False
    driver: Any = connection.connection.driver_connection
    driver.execute(f"PRAGMA incremental_vacuum({STEP_PAGES})").fetchall()  # a row without columns for each page
    return free > STEP_PAGES


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())
