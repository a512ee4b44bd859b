"""Imports point downward only: the contracts stand in pyproject.toml, `make check` runs the same ones."""

import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

ROOT = Path(__file__).parents[2]

DOWNWARD, MODELS = "Imports point downward only", "Models are called from providers alone"
WIRE = "Wire formats stand apart from what they share, and do not know each other"
VIOLATIONS = [
    ("util/ids.py", "import app.sessions", "app.sessions", DOWNWARD),
    ("permissions/rules.py", "import app.tools", "app.tools", DOWNWARD),
    ("sessions/store.py", "import sqlalchemy", "sqlalchemy", "SQL stands in record alone"),
    ("workspace/loop.py", "import openai", "openai", MODELS),
    ("workspace/lazy.py", "def f():\n    import anthropic", "anthropic", MODELS),
    ("workspace/runner.py", "from fastapi import HTTPException", "fastapi", "The web framework stands in api and main alone"),
    ("providers/openai_chat.py", "import app.providers.openai_responses", "app.providers.openai_responses", WIRE),
    ("api/event.py", "import uvicorn", "uvicorn", "uvicorn stands in http_server alone, typer in cli"),
]
"""Module, code, what it imports, and the contract that forbids it."""


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


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = grimp.build_graph("app", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 300
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


def test_the_import_rules_hold() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


def test_violations_are_found(tmp_path: Path) -> None:
    copy = empty_copy(tmp_path)
    for path, code, _, _ in VIOLATIONS:
        (copy / "app" / path).write_text(code + "\n")
    result = lint_imports(copy)
    assert result.returncode == 1, result.stdout + result.stderr
    for path, _, imported, contract in VIOLATIONS:
        module = "app." + path.removesuffix(".py").replace("/", ".")
        assert f"{contract} BROKEN" in result.stdout
        assert re.search(rf"{re.escape(module)} -> {re.escape(imported)}\b", result.stdout), (module, result.stdout)
