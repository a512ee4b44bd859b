from pathlib import Path

import pytest
from confined import Confined


@pytest.fixture
def confined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Confined:
    """A project in a home directory that holds secrets, with another project beside it."""
    return Confined.make(tmp_path, monkeypatch)
