"""A server and a session, for the flows that need nothing else of them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from plugin_files import PluginFiles
from running_app import RunningApp, running_app


@pytest.fixture
async def app(tmp_path: Path) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path) as running:
        yield running


@pytest.fixture
async def session(app: RunningApp) -> str:
    return str((await app.create_session())["id"])


@pytest.fixture
def files(plain_environment: Path) -> PluginFiles:
    return PluginFiles(plain_environment)
