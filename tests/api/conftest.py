from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from running_app import RunningApp, running_app
from user_logins import user


@pytest.fixture
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the server, whose user is `opencode`."""
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "right")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningApp]:
    """One for all tests of a file whose `pytestmark` is `asyncio(loop_scope="module")`: each uses sessions of its own."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OPENCODE_TEST_HOME", str(tmp_path_factory.mktemp("home")))
        async with running_app(tmp_path_factory.mktemp("shared")) as running:
            yield running


def _logged_in(name: str, role: str) -> Any:
    @pytest.fixture(name=name)
    async def as_user(app: RunningApp) -> AsyncIterator[RunningApp]:
        async with user(app, name, role) as client:
            yield client

    return as_user


anna, bert = _logged_in("anna", "member"), _logged_in("bert", "member")
vera, root = _logged_in("vera", "viewer"), _logged_in("root", "admin")
"""The server of the test as they see it."""
