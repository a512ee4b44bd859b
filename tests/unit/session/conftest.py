import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from session_parts import Sessions, open_sessions


@pytest.fixture
async def sessions(tmp_path: Path, migrated_database: Path) -> AsyncIterator[Sessions]:
    """A store on a real database with one session, `ses_1`."""
    path = tmp_path / "opensession.db"
    shutil.copy(migrated_database, path)
    opened = await open_sessions(path)
    yield opened
    await opened.close()
