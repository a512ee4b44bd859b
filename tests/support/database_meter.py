"""What a server asks of its embedded database: statements, bytes that were read and written, and SQLite's own work."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from typing import Any

from sqlalchemy import Connection, Engine, event

_STEP = 100


@dataclass
class Spent:
    """`work` counts SQLite's instructions, in hundreds; `read` the bytes of the texts that were read, `written` the characters of
    the values given to statements that write; `statements` all but those that begin and end transactions; `commits` those of
    transactions that write."""

    statements: int = 0
    read: int = 0
    written: int = 0
    work: int = 0
    commits: int = 0

    def since(self, before: "Spent") -> "Spent":
        return Spent(*(now - then for now, then in zip(astuple(self), astuple(before), strict=True)))

    def copy(self) -> "Spent":
        return replace(self)


def _values(row: Any) -> Iterable[Any]:
    return row.values() if isinstance(row, dict) else row


@contextmanager
def metered() -> Iterator[Spent]:
    """Counts for every engine that is made within the block."""
    spent = Spent()

    def count_statement(_connection: Any, _cursor: Any, statement: str, values: Any, _context: Any, is_many: bool) -> None:
        spent.commits += statement == "BEGIN IMMEDIATE"
        spent.statements += not statement.startswith(("BEGIN", "COMMIT"))
        if statement.startswith(("INSERT", "UPDATE")):
            spent.written += sum(len(str(value)) for row in (values if is_many else [values]) for value in _values(row))

    def watch(connection: Any, _record: object) -> None:
        def count_work() -> int:
            spent.work += 1
            return 0

        connection.set_progress_handler(count_work, _STEP)

    def text(data: bytes) -> str:
        spent.read += len(data)
        return data.decode(errors="replace")

    def watch_texts(connection: Connection) -> None:
        """Not when it connects: the engine sets what reads texts behind this listener."""
        driver: Any = connection.connection.dbapi_connection
        driver.text_factory = text

    event.listen(Engine, "before_cursor_execute", count_statement)
    event.listen(Engine, "connect", watch)
    event.listen(Engine, "begin", watch_texts)
    try:
        yield spent
    finally:
        event.remove(Engine, "before_cursor_execute", count_statement)
        event.remove(Engine, "connect", watch)
        event.remove(Engine, "begin", watch_texts)
