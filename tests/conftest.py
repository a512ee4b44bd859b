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


@pytest.fixture(scope="session")
def migrated_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty database file, migrated once; a test copies it."""
    from app.storage.engine import make_engine
    from app.storage.migrate import upgrade

    path = tmp_path_factory.mktemp("migrated") / "opensession.db"
    engine = make_engine(f"sqlite:///{path}")
    upgrade(engine)
    engine.dispose()
    return path
