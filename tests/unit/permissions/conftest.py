"""The same tests on SQLite and on a real PostgreSQL."""

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from postgres import migrated
from storage_parts import HeldDatabase, Storage, open_storage_at


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path, migrated_database: Path) -> str:
    """Of a migrated database."""
    if request.param == "sqlite":
        shutil.copy(migrated_database, tmp_path / "opensession.db")
        return f"sqlite:///{tmp_path / 'opensession.db'}"
    return migrated(request.getfixturevalue("postgres"))


@pytest.fixture
async def storage(url: str) -> AsyncIterator[Storage]:
    opened = open_storage_at(url)
    assert isinstance(opened.database, HeldDatabase)
    yield opened
    opened.database.full = False
    opened.database.gate.set()
    await opened.writer.barrier()
    opened.database.close()
