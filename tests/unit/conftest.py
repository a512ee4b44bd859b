import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from session_parts import Sessions


@pytest.fixture
async def sessions(tmp_path: Path, migrated_database: Path) -> AsyncIterator["Sessions"]:
    """A store on a real database with one session, `ses_1`."""
    from session_parts import open_sessions  # imports half of the server: the tests of the other half start sooner without

    path = tmp_path / "opensession.db"
    shutil.copy(migrated_database, path)
    opened = await open_sessions(path)
    yield opened
    await opened.close()
