import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from postgres import migrated
from webhook_desk import JumpingClock, WebhookDesk, jumping_clock, webhook_desk


@pytest.fixture
def time() -> Iterator[JumpingClock]:
    with jumping_clock() as jumping:
        yield jumping


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path, migrated_database: Path) -> str:
    if request.param == "postgresql":
        return migrated(request.getfixturevalue("postgres"))
    path = tmp_path / "opensession.db"
    shutil.copy(migrated_database, path)
    return f"sqlite:///{path}"


@pytest.fixture
async def desk(database_url: str, tmp_path: Path, time: JumpingClock) -> AsyncIterator[WebhookDesk]:
    async with webhook_desk(database_url, tmp_path, time) as opened:
        yield opened
