"""What PostgreSQL needs told. psycopg is the extra `postgres`: this module is imported only when such a database is named."""

from typing import Any

from psycopg.abc import Buffer
from psycopg.types.string import StrDumperUnknown
from sqlalchemy import URL, Connection, Engine, create_engine, event

_WRITERS_LOCK = 7_363_736_911_502_291
"""Any number that no other program takes in the same database."""


class _WithoutNul(StrDumperUnknown):
    """Text cannot hold NUL there. JSON bodies have it escaped; in a name it becomes the sign for what cannot be shown, so that a
    lookup finds nothing instead of failing."""

    def dump(self, obj: str) -> Buffer | None:
        return super().dump(obj.replace("\0", "\ufffd"))


def postgres_engine(url: URL, connections: int, patience_ms: int) -> Engine:
    """`patience_ms`: how long a lock, a connection and the acknowledgement of what was sent are waited for. Without a limit a
    network that swallows packets would hold a write, and all that wait behind it, for a quarter of an hour."""

    def configure(connection: Any, _record: object) -> None:
        connection.adapters.register_dumper(str, _WithoutNul)
        connection.autocommit = True
        connection.execute(f"SET lock_timeout = {patience_ms}")
        connection.autocommit = False

    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_size=connections,
        pool_pre_ping=True,
        connect_args={"client_encoding": "utf8", "connect_timeout": patience_ms // 1000, "tcp_user_timeout": patience_ms},
    )
    event.listen(engine, "connect", configure)
    event.listen(engine, "begin", _begin)
    return engine


def _begin(connection: Connection) -> None:
    """Writers go one after another, whatever server they belong to, as they do in SQLite: the journal's numbers are committed in
    their order, and what a writer reads stays true until it has written."""
    if connection.get_execution_options().get("immediate"):
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_WRITERS_LOCK})")
