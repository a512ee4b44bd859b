"""The database's clock, so that servers on several machines agree on the time."""

from sqlalchemy import BigInteger, ColumnElement, bindparam, cast, func

from app.util import clock


def now_ms(dialect: str) -> ColumnElement[int]:
    """Milliseconds since the epoch. For SQLite this is the server's own clock, which tests can set."""
    if dialect == "sqlite":
        return bindparam("now", callable_=clock.now_ms, type_=BigInteger)
    return cast(func.extract("epoch", func.clock_timestamp()) * 1000, BigInteger)
