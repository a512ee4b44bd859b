"""What the tests that try tricks share."""

from pathlib import Path

import pytest
from trick_ground import Location


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    """With a home directory, a PATH and a shell of its own."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{Path('/usr/bin')}:/bin")
    monkeypatch.setenv("SHELL", "/bin/bash")
    return Location(tmp_path)
