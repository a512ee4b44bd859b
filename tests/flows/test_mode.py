"""What a server says at its start: whether it works alone or as one of several, and what it found."""

import asyncio
import socket
from pathlib import Path

from postgres import PostgresServer, migrated
from redis_server import running_redis
from running_app import running_app
from running_server import free_port

from app.cli.checks import startup_lines
from app.settings import Settings


def test_several_servers_on_postgresql(tmp_path: Path, postgres: PostgresServer) -> None:
    nobody = free_port()
    with running_redis() as redis:
        url = migrated(postgres).replace("@", ":secret@")
        alone = startup_lines(Settings(data_dir=tmp_path, database_url=url))
        together = startup_lines(Settings(data_dir=tmp_path, database_url=url, redis_url=redis.url))
        away = startup_lines(Settings(data_dir=tmp_path, database_url=url, redis_url=f"redis://:secret@127.0.0.1:{nobody}"))
    assert alone[0].startswith("Mode: several servers on PostgreSQL (PostgreSQL ") and f"127.0.0.1:{postgres.port}/" in alone[0]
    assert alone[1].startswith("Redis: none is named") and "read from the database" in alone[1]
    assert together[0] == alone[0] and together[1].startswith("Redis: Redis ")
    assert f"127.0.0.1:{nobody} cannot be used" in away[1] and "read from the database" in away[1]
    assert "secret" not in "".join([*alone, *together, *away])


async def test_a_root_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with running_app(tmp_path):
        roots = f"{tmp_path}:{tmp_path / 'typo'}"
        (_, *others) = await asyncio.to_thread(startup_lines, Settings(data_dir=tmp_path / "data", roots=roots))
    assert others == [f"OPENSESSION_ROOTS: there is no directory {tmp_path / 'typo'}"]


async def test_the_other_servers_are_named(tmp_path: Path, postgres: PostgresServer) -> None:
    url, shared, elsewhere = migrated(postgres), tmp_path / "data", tmp_path / "elsewhere"
    async with running_app(tmp_path, database_url=url):
        (*_, named) = await asyncio.to_thread(startup_lines, Settings(data_dir=shared, database_url=url))
        elsewhere.mkdir()
        (*_, warning) = await asyncio.to_thread(startup_lines, Settings(data_dir=elsewhere, database_url=url))
    assert named == f"Other servers of this database: {socket.gethostname()}:4096"
    assert warning.startswith("WARNING: ") and str(elsewhere) in warning
