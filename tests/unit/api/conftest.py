"""The clock that rate limits are counted by."""

from types import SimpleNamespace

import pytest


@pytest.fixture
def time_of_limits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Stands still; its one item is the time."""
    now = [1000.0]
    for module in ("limits.aio.storage.memory", "app.users.login"):
        monkeypatch.setattr(f"{module}.time", SimpleNamespace(time=lambda: now[0]))
    return now
