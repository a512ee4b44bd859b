"""Commits that a database refuses, as on a full disk or a lost connection."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import OperationalError


@contextmanager
def refused_commits(when: Callable[[], bool]) -> Iterator[None]:
    """While this lasts, a transaction of this process that writes fails at its COMMIT when the condition holds."""

    def refuse(connection: Connection) -> None:
        if connection.get_execution_options().get("immediate") and when():
            raise OperationalError("COMMIT", {}, sqlite3.OperationalError("database or disk is full"))

    event.listen(Engine, "commit", refuse)
    try:
        yield
    finally:
        event.remove(Engine, "commit", refuse)
