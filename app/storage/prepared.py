"""Statements that are made into SQL once. SQLAlchemy looks a statement up, with its types and values, each time it is executed,
and makes its rows: where a key finds a row, that takes several times as long as SQLite does."""

import sqlite3
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, MultipleResultsFound, NoResultFound
from sqlalchemy.sql.base import Executable

_Values = Mapping[str, Any]


class PreparedStatement(Executable):
    """Is executed as any statement is. It takes texts, numbers and flags, no lists, and gives texts and numbers."""

    def __init__(self, statement: Executable) -> None:
        self._statement = statement
        self._by_columns: dict[tuple[str, ...], _DriverStatement] = {}

    def _execute_on_connection(self, connection: Connection, distilled_params: Any, execution_options: Any) -> Any:
        """What SQLAlchemy asks each statement to do."""
        rows: Sequence[_Values] = distilled_params or ({},)
        columns = (connection.dialect.name, *rows[0])
        made = self._by_columns.get(columns)
        if made is None:
            made = self._by_columns[columns] = _DriverStatement(self._statement, connection, rows[0])
        return made.execute(connection, rows)


class _DriverStatement:
    """For rows that have the same columns as `row`. `_fixed`: values that the statement itself has; `_current`: those that it
    asks for when it is executed."""

    def __init__(self, statement: Any, connection: Connection, row: _Values) -> None:
        dialect = connection.dialect
        compiled = statement.compile(dialect=dialect, column_keys=list(row), for_executemany=True)
        own = {name: bind for name, bind in compiled.binds.items() if not bind.required and name not in row}
        defaults = {column.key: column.default.arg for column in compiled.insert_prefetch}
        self._sql = str(compiled)
        self._fixed: _Values = {name: bind.value for name, bind in own.items() if not bind.callable} | defaults
        self._current: Mapping[str, Callable[[], Any]] = {name: bind.callable for name, bind in own.items() if bind.callable}
        self._make_row: Callable[[Any], Any] | None = None
        self._is_embedded = dialect.name == "sqlite"
        for column in getattr(statement, "exported_columns", ()):
            converts = column.type.dialect_impl(dialect).result_processor(dialect, None)
            assert not converts, f"{column.name} has to be converted"

    def execute(self, connection: Connection, rows: Sequence[_Values]) -> Any:
        values = [self._completed(row) for row in rows] if len(rows) > 1 else self._completed(rows[0])
        return self._on_sqlite(connection, values) if self._is_embedded else connection.exec_driver_sql(self._sql, values)

    def _completed(self, row: _Values) -> _Values:
        if not self._current:
            return {**self._fixed, **row} if self._fixed else row
        return {**self._fixed, **{name: value() for name, value in self._current.items()}, **row}

    def _on_sqlite(self, connection: Connection, values: Any) -> "_FoundRows":
        """Past SQLAlchemy, but for its errors and for who listens to statements."""
        cursor: Any = connection.connection.cursor()
        is_many = isinstance(values, list)
        for listener in connection.dispatch.before_cursor_execute:
            listener(connection, cursor, self._sql, values, None, is_many)
        try:
            (cursor.executemany if is_many else cursor.execute)(self._sql, values)
            rows = cursor.fetchall()
        except sqlite3.Error as error:
            raise DBAPIError.instance(self._sql, values, error, sqlite3.Error, ismulti=is_many) from error
        if self._make_row is None:
            names = [name for name, *_ in cursor.description or ()]
            row_type: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]  # known only now
            self._make_row = row_type._make
        return _FoundRows(list(map(self._make_row, rows)), cursor.rowcount)


class _FoundRows:
    """What is asked of SQLAlchemy's results. `rowcount`: of how many rows were written."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: list[Any], rowcount: int) -> None:
        self._rows = rows
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def all(self) -> list[Any]:
        return self._rows

    def first(self) -> Any:
        return self._rows[0] if self._rows else None

    def one_or_none(self) -> Any:
        if len(self._rows) > 1:
            raise MultipleResultsFound("Several rows were found where one is expected")
        return self.first()

    def one(self) -> Any:
        if not self._rows:
            raise NoResultFound("No row was found where one is required")
        return self.one_or_none()

    def scalars(self) -> list[Any]:
        return [row[0] for row in self._rows]

    def scalar_one(self) -> Any:
        return self.one()[0]

    def scalar_one_or_none(self) -> Any:
        row = self.one_or_none()
        return row and row[0]

    def close(self) -> None:
        """All is fetched."""
