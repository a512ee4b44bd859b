"""What all tests share: an environment that configures nothing."""

import os
from pathlib import Path

import pytest

CONFIGURING = ("OPENSESSION_", "OPENCODE_", "XDG_")


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No flags, no keys, and an empty home; the keys and configuration of whoever runs the tests change nothing."""
    for name in os.environ:
        if name.startswith(CONFIGURING) or name.endswith("_API_KEY"):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("OPENCODE_TEST_HOME", str(home))
    return home
