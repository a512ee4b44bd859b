"""openapi.yaml at the root is what the code says now, and the client's generated modules what it says: `make openapi`."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_openapi_yaml_is_current(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "app.cli", "openapi"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OPENSESSION_DATA_DIR": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert result.returncode == 0, result.stderr
    is_current = result.stdout == (ROOT / "openapi.yaml").read_text()
    assert is_current, "run `make openapi`"
    assert not (tmp_path / "data").exists(), "describing the API must not touch a data directory"


def test_what_is_generated_of_the_python_client_is_current() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "generator", "--check"], cwd=ROOT / "client", capture_output=True, text=True, timeout=180
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
