"""What the tests of the Python client share: a server whose model works by rules."""

from collections.abc import Iterator

import pytest
from running_server import RunningServer, serving_here

from opensession_client import Opensession


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving_here(tmp_path_factory.mktemp("client")) as running:
        yield running


@pytest.fixture
def client(server: RunningServer) -> Iterator[Opensession]:
    with Opensession(server.base) as opened:
        yield opened
