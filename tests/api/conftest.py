from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from running_app import RunningApp, running_app


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    """A server whose model says `ok` to everything."""
    async with running_app(tmp_path) as running:
        yield running
