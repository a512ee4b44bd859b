"""What several servers share: PostgreSQL, Redis, the volume with the data directory, the time. `doctor` looks it over, and a
start says how the server works: alone on SQLite, or as one of several on PostgreSQL, with or without Redis."""

import fcntl
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from app.bus.redis_link import RedisUnusable, find_redis
from app.session.lease import DEAD_AFTER_MS
from app.settings import Settings
from app.storage import maintenance
from app.storage.engine import Connection, Engine, make_engine, transaction
from app.storage.maintenance import Finding
from app.storage.migrate import HEAD, revision
from app.storage.repositories import work_rows
from app.util.data_files import volume_id

CONNECTIONS_OF_A_SERVER = 6
CLOCK_SECONDS = 1.0
LOCK_SECONDS = 10

_TRY_LOCK = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"


def check_servers(settings: Settings, engine: Engine) -> Iterator[Finding]:
    """Nothing is shared on SQLite. Raises StorageError."""
    if engine.dialect.name == "sqlite":
        if settings.redis_url:
            yield Finding("Redis", "note", "not used: it connects servers of one PostgreSQL (OPENSESSION_DATABASE_URL)")
        return
    with transaction(engine) as connection:
        replicas = work_rows.replicas(connection) if revision(connection) == HEAD else []
        yield from _postgres(connection)
        yield _clock(connection)
    yield _redis(settings)
    yield _volume(settings.data_dir, [each for each in replicas if each.age <= DEAD_AFTER_MS])
    yield _lock(settings.data_dir)


def _postgres(connection: Connection) -> Iterator[Finding]:
    found = maintenance.product(connection)
    if maintenance.is_read_only(connection):
        yield Finding("PostgreSQL", "fault", f"{found} is read-only: name the primary in OPENSESSION_DATABASE_URL")
        return
    free = maintenance.free_connections(connection)
    room = f"room for {free // CONNECTIONS_OF_A_SERVER} more servers"
    if free < CONNECTIONS_OF_A_SERVER:
        yield Finding("PostgreSQL", "fault", f"{found}: {free} connections are free, a server takes {CONNECTIONS_OF_A_SERVER}")
    else:
        yield Finding("PostgreSQL", "fine", f"{found}, {room}")


def _clock(connection: Connection) -> Finding:
    ahead = maintenance.clock_ahead_seconds(connection)
    if abs(ahead) <= CLOCK_SECONDS:
        return Finding("clocks", "fine", f"this machine's and the database's differ by {abs(ahead):.2f} s")
    where = "ahead of" if ahead > 0 else "behind"
    text = f"the database's is {abs(ahead):.0f} s {where} this machine's: leases hold, but times in messages and logs are wrong"
    return Finding("clocks", "note", text)


def _redis(settings: Settings) -> Finding:
    if settings.redis_url is None:
        return Finding("Redis", "note", "none is named: events of other servers are read from the database")
    try:
        return Finding("Redis", "fine", find_redis(settings.redis_url))
    except RedisUnusable as error:
        return Finding("Redis", "fault", str(error))


def _volume(data_dir: Path, alive: Sequence[Any]) -> Finding:
    if elsewhere := _elsewhere(data_dir, alive):
        text = f"{data_dir} is not what {', '.join(elsewhere)} see: mount the same volume there"
        return Finding("volume", "fault", text)
    seen = f"{len(alive)} running servers see it too" if alive else "no server runs that could see it too"
    return Finding("volume", "fine", f"{data_dir}: {seen}")


def _elsewhere(data_dir: Path, alive: Sequence[Any]) -> list[str]:
    own = volume_id(data_dir)
    return [each.address for each in alive if each.volume != own]


def _lock(data_dir: Path) -> Finding:
    """Another process must not get a lock that this one holds. Between machines it cannot be tried from one of them."""
    with tempfile.NamedTemporaryFile(dir=data_dir, prefix="lock.") as file:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return Finding("volume", "fault", f"{data_dir}: files there cannot be locked ({error.strerror})")
        command = [sys.executable, "-c", _TRY_LOCK, file.name]
        other = subprocess.run(command, stderr=subprocess.DEVNULL, timeout=LOCK_SECONDS, env={"PATH": os.defpath})
    if other.returncode == 0:
        return Finding("volume", "fault", f"{data_dir}: a file that is locked could be locked by another process")
    return Finding("volume", "fine", "locks work between processes of this machine")


# What is said at a start.


def mode(settings: Settings) -> list[str]:
    """Sentences, for a server that is about to start on a database of the current schema. Raises StorageError."""
    engine = make_engine(settings.resolved_database_url)
    try:
        with engine.connect() as connection:
            found = maintenance.product(connection)
            others = [each for each in work_rows.replicas(connection) if each.age <= DEAD_AFTER_MS]
    finally:
        engine.dispose()
    if engine.dialect.name == "sqlite":
        said = [f"Mode: one server on SQLite ({found})"]
        unused = "OPENSESSION_REDIS_URL is not used: it connects servers of one PostgreSQL (OPENSESSION_DATABASE_URL)."
        return [*said, unused] if settings.redis_url else said
    return [f"Mode: several servers on PostgreSQL ({found})", _said_of_redis(settings), *_said_of(others, settings.data_dir)]


def _said_of_redis(settings: Settings) -> str:
    if settings.redis_url is None:
        return "Without Redis: events of other servers are read from the database (OPENSESSION_REDIS_URL names one)."
    try:
        return f"Events between servers: {find_redis(settings.redis_url)}"
    except RedisUnusable as error:
        return f"{error}. Until it can, events of other servers are read from the database."


def _said_of(others: Sequence[Any], data_dir: Path) -> Iterator[str]:
    yield f"Other servers of this database: {', '.join(each.address for each in others) or 'none yet'}"
    if elsewhere := _elsewhere(data_dir, others):
        yield f"WARNING: {', '.join(elsewhere)} see another directory than {data_dir}: mount the same volume there."
