"""The same tests on SQLite and on a real PostgreSQL."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from postgres import PostgresServer, running_postgres
from storage_parts import HeldDatabase, Storage, open_storage_at

from app.storage.engine import make_engine
from app.storage.migrate import upgrade


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with running_postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, migrated_database: Path) -> str:
    """Of a migrated database."""
    if request.param == "sqlite":
        shutil.copy(migrated_database, tmp_path / "opensession.db")
        return f"sqlite:///{tmp_path / 'opensession.db'}"
    made: str = request.getfixturevalue("postgres").new_database()
    engine = make_engine(made)
    upgrade(engine)
    engine.dispose()
    return made


@pytest.fixture
async def storage(url: str) -> AsyncIterator[Storage]:
    opened = open_storage_at(url)
    assert isinstance(opened.database, HeldDatabase)
    yield opened
    opened.database.full = False
    opened.database.gate.set()
    await opened.writer.drain()
    opened.database.close()
