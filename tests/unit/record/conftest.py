import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from storage_parts import Storage, open_storage


@pytest.fixture
async def storage(tmp_path: Path, migrated_database: Path) -> AsyncIterator[Storage]:
    path = tmp_path / "opensession.db"
    shutil.copy(migrated_database, path)
    opened = open_storage(path)
    yield opened
    await opened.writer.barrier()
    opened.database.close()
