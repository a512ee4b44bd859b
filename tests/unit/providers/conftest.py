import asyncio
from collections.abc import AsyncIterator

import pytest
from fake_provider import FakeServer


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    fake = FakeServer()
    listener = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    fake.port = listener.sockets[0].getsockname()[1]
    yield fake
    listener.close()
