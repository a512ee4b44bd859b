"""Commits that are refused, as on a full disk, to all servers in this process."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import current_thread
from typing import Any

from sqlalchemy import Connection, Engine, event
from sqlalchemy.exc import OperationalError

FULL = OperationalError("COMMIT", {}, sqlite3.OperationalError("database or disk is full"))


class RefusedCommits:
    """`refuses`: no transaction that writes is committed. `starts_with`: refuses from the first row on that holds this text.
    `when`: refuses each at whose commit this holds. `refused_text`: each with a row that holds it is refused, no other."""

    def __init__(self) -> None:
        self.refuses = False
        self.when: Callable[[], bool] | None = None
        self.starts_with: str | None = None
        self.refused_text: str | None = None

    def before_execute(self, _connection: Connection, _cursor: Any, _statement: str, parameters: Any, *_rest: Any) -> None:
        if self.starts_with is not None and self.starts_with in repr(parameters):
            self.refuses, self.starts_with = True, None
        if self.refused_text is not None and self.refused_text in repr(parameters):
            raise FULL

    def before_commit(self, _connection: Connection) -> None:
        if not current_thread().name.startswith("database-writer"):
            return
        if self.refuses or (self.when is not None and self.when()):
            raise FULL


@contextmanager
def refused_commits() -> Iterator[RefusedCommits]:
    commits = RefusedCommits()
    event.listen(Engine, "before_cursor_execute", commits.before_execute)
    event.listen(Engine, "commit", commits.before_commit)
    try:
        yield commits
    finally:
        event.remove(Engine, "before_cursor_execute", commits.before_execute)
        event.remove(Engine, "commit", commits.before_commit)
