"""Transactions on PostgreSQL, which may be restarted meanwhile."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Literal, TypeVar

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError

T = TypeVar("T")

Begin = Callable[[], AbstractContextManager[Connection]]

RECONNECT_SECONDS = 5.0
"""Longer than a server goes on with its turns without a heartbeat: they are taken over then, rather than ended with an error."""
RECONNECT_PAUSE_SECONDS = 0.1

TRANSACTION = "transaction"
"""What a connection notes the number of its transaction by."""

_OUTCOME = text("SELECT txid_status(:number)")


class OutcomeUnknown(SQLAlchemyError):
    """The connection broke during a commit, and nobody could be asked whether that is stored. It must not be repeated."""

    def __init__(self) -> None:
        super().__init__("the connection to the database broke during a commit, and whether it is stored could not be found out")


def may_be_committed(error: Exception) -> bool:
    """Of an error of a transaction: whether that must not be run again."""
    return isinstance(error, OutcomeUnknown) or (isinstance(error, DBAPIError) and error.connection_invalidated)


class Reconnecting:
    """Begins again, for a while, when the connection is lost before the commit: the database is being restarted. When it is lost
    during the commit, the database is asked for the outcome."""

    def __init__(self, engine: Engine, begin: Begin) -> None:
        self._engine = engine
        self._begin = begin

    def run(self, work: Callable[[Connection], T]) -> T:
        """Raises OutcomeUnknown."""
        deadline = time.monotonic() + RECONNECT_SECONDS
        while True:
            committing: list[int | None] = []
            try:
                with self._begin() as connection:
                    result = work(connection)
                    committing.append(connection.info.pop(TRANSACTION, None))
                return result
            except SQLAlchemyError as error:
                if not is_disconnected(error):
                    raise
                if any(self._is_committed(number) for number in committing):
                    return result
                if time.monotonic() > deadline:
                    raise
            time.sleep(RECONNECT_PAUSE_SECONDS)

    def _is_committed(self, number: int | None) -> bool:
        """A transaction that only read has no number: it is run again. Raises OutcomeUnknown."""
        if number is None:
            return False
        deadline = time.monotonic() + RECONNECT_SECONDS
        while (outcome := self._outcome(number)) == "in progress":
            if time.monotonic() > deadline:
                raise OutcomeUnknown
            time.sleep(RECONNECT_PAUSE_SECONDS)
        return outcome == "committed"

    def _outcome(self, number: int) -> Literal["committed", "aborted", "in progress"]:
        """In progress also while the database does not answer."""
        try:
            with self._engine.connect() as connection:
                outcome: Literal["committed", "aborted", "in progress"] | None = connection.execute(
                    _OUTCOME, {"number": number}
                ).scalar_one()
        except SQLAlchemyError as error:
            if is_disconnected(error):
                return "in progress"
            raise OutcomeUnknown from error  # this database never had it: another has taken the place of the one that broke
        if outcome is None:
            raise OutcomeUnknown
        return outcome


def is_disconnected(error: SQLAlchemyError) -> bool:
    """No connection could be made, or it broke."""
    is_unmade = isinstance(error, OperationalError | InterfaceError) and error.statement is None
    return is_unmade or (isinstance(error, DBAPIError) and error.connection_invalidated)
