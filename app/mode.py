"""How a server works, printed at its start: alone on SQLite, or as one of several on PostgreSQL, with or without Redis."""

from collections.abc import Iterator, Sequence
from typing import Any

from app.bus.redis_server import RedisUnusable, find_redis
from app.session.lease import DEAD_AFTER_MS
from app.settings import Settings
from app.storage.engine import make_engine
from app.storage.repositories import lease_rows
from app.storage.server_facts import product
from app.util.volume import volume_id


def mode(settings: Settings) -> list[str]:
    """Sentences, for a server that is about to start on a database of the current schema. Raises StorageError."""
    engine = make_engine(settings.resolved_database_url)
    try:
        with engine.connect() as connection:
            found = product(connection)
            others = [each for each in lease_rows.replicas(connection) if each.age <= DEAD_AFTER_MS]
    finally:
        engine.dispose()
    if engine.dialect.name == "sqlite":
        return [f"Mode: one server on SQLite ({found})", *_redis_unused(settings)]
    return [f"Mode: several servers on PostgreSQL ({found})", _redis(settings), *_others(settings, others)]


def _redis_unused(settings: Settings) -> Iterator[str]:
    if settings.redis_url:
        yield "OPENSESSION_REDIS_URL is not used: it connects servers of one PostgreSQL (OPENSESSION_DATABASE_URL)."


def _redis(settings: Settings) -> str:
    if settings.redis_url is None:
        return "Without Redis: events of other servers are read from the database (OPENSESSION_REDIS_URL names one)."
    try:
        return f"Events between servers: {find_redis(settings.redis_url)}"
    except RedisUnusable as error:
        return f"{error}. Until it can, events of other servers are read from the database."


def _others(settings: Settings, others: Sequence[Any]) -> Iterator[str]:
    yield f"Other servers of this database: {', '.join(each.address for each in others) or 'none yet'}"
    elsewhere = [each.address for each in others if each.volume != volume_id(settings.data_dir)]
    if elsewhere:
        yield f"WARNING: {', '.join(elsewhere)} see another directory than {settings.data_dir}: mount the same volume there."
