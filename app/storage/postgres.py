"""The PostgreSQL engine. psycopg is the extra `postgres`: this module is imported only for a PostgreSQL URL."""

import logging
import time
from typing import Any

from psycopg.abc import Buffer
from psycopg.errors import LockNotAvailable
from psycopg.types.string import StrDumperUnknown
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import OperationalError

from app.storage.reconnecting import TRANSACTION

log = logging.getLogger(__name__)

_WRITERS_LOCK = 7_363_736_911_502_291
"""The key of the advisory lock. Any number that no other program uses in the same database."""


class _WithoutNul(StrDumperUnknown):
    """Replaces NUL, which PostgreSQL's text cannot hold, by U+FFFD, so that a lookup finds nothing instead of failing. JSON
    bodies escape it."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\0", "\ufffd"))


IDLE_IN_TRANSACTION_MS = 2_500
"""After which PostgreSQL ends what a server has begun and leaves, though nobody waits for it."""
STANDSTILL_MS, LOOK_MS = 1_500, 400
"""The longest that a server which is frozen or cut off within a transaction holds the others up, and how often these look whether
it is. A heartbeat that waits for both is written before its server takes itself for cut off, and stops its turns."""
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
    return engine


def wait_for_writers(connection: Connection, timeout_ms: int) -> None:
    """Serializes the writers of all servers, as SQLite does: the journal's numbers are committed in order, and what a writer
    reads stays valid until it commits. Each notes the transaction's number, by which its outcome is found."""
    connection.info[TRANSACTION] = _wait_for_writers(connection, timeout_ms)


def _wait_for_writers(connection: Connection, timeout_ms: int) -> int:
    """Looks now and then whether the one that writes stands still. Returns the transaction's number."""
    deadline = time.monotonic() + timeout_ms / 1000
    # What stands behind FROM is done first: this wait has a limit of its own.
    lock = (
        f"SELECT pg_advisory_xact_lock({_WRITERS_LOCK}), txid_current(), set_config('lock_timeout', '{timeout_ms}', true)"
        f" FROM set_config('lock_timeout', '{min(LOOK_MS, timeout_ms)}', true)"
    )
    while True:
        try:
            number: int = connection.exec_driver_sql(lock).one()[1]
            return number
        except OperationalError as error:
            if not isinstance(error.orig, LockNotAvailable) or time.monotonic() > deadline:
                raise
        connection.connection.rollback()  # to PostgreSQL the transaction is over, and nothing was done in it yet
        if connection.exec_driver_sql(_END_STANDSTILL).all():
            log.warning("a server stands still, or is cut off, within a transaction: its connection to the database was ended")


_END_STANDSTILL = f"""
    SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND datname = current_database() AND database = datid
    AND classid = {_WRITERS_LOCK >> 32} AND objid = {_WRITERS_LOCK & 0xFFFFFFFF}
    AND wait_event_type = 'Client' AND state_change < clock_timestamp() - interval '{STANDSTILL_MS} ms'
"""
"""PostgreSQL itself ends what is idle in a transaction, but not what waits for the rest of a message, for the next one of several
that are sent together, or for its answer to be read: that counts as active."""
