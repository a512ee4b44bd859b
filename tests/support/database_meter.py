"""What a server asks of its embedded database: statements, rows' bytes that were read, and SQLite's own work."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, event

_STEP = 100


@dataclass
class Spent:
    """`work` counts SQLite's instructions, in hundreds; `read` the bytes of the texts that were read."""

    statements: int = 0
    read: int = 0
    work: int = 0

    def since(self, before: "Spent") -> "Spent":
        return Spent(self.statements - before.statements, self.read - before.read, self.work - before.work)

    def copy(self) -> "Spent":
        return Spent(self.statements, self.read, self.work)


@contextmanager
def metered() -> Iterator[Spent]:
    """Counts for every engine that is made within the block."""
    spent = Spent()

    def count_statement(*_: Any) -> None:
        spent.statements += 1

    def watch(connection: Any, _record: object) -> None:
        def text(data: bytes) -> str:
            spent.read += len(data)
            return data.decode()

        def count_work() -> int:
            spent.work += 1
            return 0

        connection.text_factory = text
        connection.set_progress_handler(count_work, _STEP)

    event.listen(Engine, "before_cursor_execute", count_statement)
    event.listen(Engine, "connect", watch)
    try:
        yield spent
    finally:
        event.remove(Engine, "before_cursor_execute", count_statement)
        event.remove(Engine, "connect", watch)
