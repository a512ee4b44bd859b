"""A server and a session, for the flows that need nothing else of them."""

from pathlib import Path

import pytest
from plugin_files import PluginFiles
from running_app import RunningApp


@pytest.fixture
async def session(app: RunningApp) -> str:
    return str((await app.create_session())["id"])


@pytest.fixture
def files(plain_environment: Path) -> PluginFiles:
    return PluginFiles(plain_environment)
