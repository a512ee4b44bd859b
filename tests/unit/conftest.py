import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from open_store import OpenStore


@pytest.fixture
async def stored(tmp_path: Path, migrated_database: Path) -> AsyncIterator["OpenStore"]:
    """An open database with one session in it."""
    from open_store import open_store  # imports half of the server: the tests of the other half start sooner without

    path = tmp_path / "opensession.db"
    shutil.copy(migrated_database, path)
    opened = await open_store(path, tmp_path)
    yield opened
    await opened.close()
