"""The PostgreSQL engine. psycopg is the extra `postgres`: this module is imported only for a PostgreSQL URL."""

from typing import Any

from psycopg.abc import Buffer
from psycopg.types.string import StrDumperUnknown
from sqlalchemy import URL, Connection, Engine, create_engine, event

from app.storage.reconnecting import TRANSACTION

_WRITERS_LOCK = 7_363_736_911_502_291
"""The key of the advisory lock. Any number that no other program uses in the same database."""


class _WithoutNul(StrDumperUnknown):
    """Replaces NUL, which PostgreSQL's text cannot hold, by U+FFFD, so that a lookup finds nothing instead of failing. JSON
    bodies escape it."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\0", "\ufffd"))


IDLE_IN_TRANSACTION_MS = 2_500
"""The longest that a server which is frozen or cut off within a transaction holds the others up: less than the time after which
they would take themselves for cut off, and stop their turns."""
_KEEPALIVES = {"keepalives_idle": 5, "keepalives_interval": 2, "keepalives_count": 3}
"""In seconds: an idle connection to a machine that is gone is given up after eleven."""


def postgres_engine(url: URL, connections: int, timeout_ms: int) -> Engine:
    """`timeout_ms` limits the wait for a lock, for a connection and for the acknowledgement of sent data. Without it, a network
    that drops packets would block all writes for a quarter of an hour."""

    def configure(connection: Any, _record: object) -> None:
        connection.adapters.register_dumper(str, _WithoutNul)
        connection.autocommit = True
        connection.execute(f"SET lock_timeout = {timeout_ms}")
        connection.execute(f"SET idle_in_transaction_session_timeout = {IDLE_IN_TRANSACTION_MS}")
        connection.autocommit = False

    limits = {"connect_timeout": timeout_ms // 1000, "tcp_user_timeout": timeout_ms, **_KEEPALIVES}
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_size=connections + 1,  # one holds locks for as long as the server runs
        pool_pre_ping=True,
        connect_args={"client_encoding": "utf8", **limits},
    )
    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", _begin_transaction)
    return engine


def _begin_transaction(connection: Connection) -> None:
    """Serializes the writers of all servers, as SQLite does: the journal's numbers are committed in order, and what a writer
    reads stays valid until it commits. Each notes the transaction's number, by which its outcome is found."""
    if connection.get_execution_options().get("immediate"):
        begun = connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS_LOCK}), txid_current()")
        connection.info[TRANSACTION] = begun.one()[1]
