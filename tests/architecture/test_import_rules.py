"""Imports point downward only: the contracts stand in pyproject.toml, `make check` runs the same ones."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

VIOLATIONS = {
    "upward": ("util/ids.py", "import app.session", "Imports point downward only"),
    "sql outside storage": ("session/store.py", "import sqlalchemy", "SQL stands in storage alone"),
    "a model called outside provider": ("agent/loop.py", "import openai", "Models are called from provider alone"),
    "a lazy import of it": ("agent/loop.py", "def f():\n    import anthropic", "Models are called from provider alone"),
    "the web framework below api": (
        "agent/runner.py",
        "from fastapi import HTTPException",
        "The web framework stands in api and main alone",
    ),
    "a neighbour on the same layer": ("permission/rules.py", "import app.question", "Imports point downward only"),
    "another wire format": (
        "provider/openai_chat.py",
        "import app.provider.openai_responses",
        "Wire formats stand apart from what they share, and do not know each other",
    ),
    "the HTTP server outside cli": ("api/event.py", "import uvicorn", "uvicorn stands in http_server alone, typer in cli"),
}


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    program = (
        "import sys; from importlinter.cli import lint_imports; sys.path.insert(0, '.'); sys.exit(lint_imports(no_cache=True))"
    )
    return subprocess.run([sys.executable, "-P", "-c", program], cwd=directory, capture_output=True, text=True, timeout=60)


def empty_copy(directory: Path) -> Path:
    """The packages of `app` without their code, under the same contracts."""
    for source in (ROOT / "app").rglob("*.py"):
        copy = directory / source.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.touch()
    (directory / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    return directory


def test_the_import_rules_hold() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("violation", VIOLATIONS)
def test_a_violation_is_found(violation: str, tmp_path: Path) -> None:
    path, code, contract = VIOLATIONS[violation]
    copy = empty_copy(tmp_path)
    (copy / "app" / path).write_text(code + "\n")
    result = lint_imports(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    assert f"{contract} BROKEN" in result.stdout
