import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from open_store import OpenStore, open_store

from app.storage.engine import Database
from app.storage.migrate import upgrade


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Migrated once; every test gets a copy."""
    path = tmp_path_factory.mktemp("template") / "opensession.db"
    database = Database(f"sqlite:///{path}")
    upgrade(database.engine)
    database.close()
    return path


@pytest.fixture
async def stored(tmp_path: Path, empty_database: Path) -> AsyncIterator[OpenStore]:
    """An open database with one session in it."""
    path = tmp_path / "opensession.db"
    shutil.copy(empty_database, path)
    opened = await open_store(path, tmp_path)
    yield opened
    await opened.close()
