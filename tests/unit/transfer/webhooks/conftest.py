import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from postgres import migrated
from webhook_desk import JumpingClock, WebhookDesk, webhook_desk

from app.util import clock


@pytest.fixture
def time() -> JumpingClock:
    jumping = JumpingClock()
    clock.set_source(lambda: jumping.seconds)
    return jumping


@pytest.fixture(params=["sqlite", "postgresql"])
async def desk(
    request: pytest.FixtureRequest, tmp_path: Path, migrated_database: Path, time: JumpingClock
) -> AsyncIterator[WebhookDesk]:
    if request.param == "postgresql":
        url = migrated(request.getfixturevalue("postgres"))
    else:
        url = f"sqlite:///{shutil.copy(migrated_database, tmp_path / 'opensession.db')}"
    async with webhook_desk(url, tmp_path, time) as opened:
        yield opened
