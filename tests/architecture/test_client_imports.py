"""The client stands apart from the server: it imports what its wheel depends on, and the server does not import it."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "client" / "opensession_client"
PROJECT = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]


def imported(source: str) -> Iterator[str]:
    """The top packages."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)


def dependencies() -> set[str]:
    names = {requirement.partition(">")[0].replace("-", "_") for requirement in PROJECT["dependencies"]}
    return names | {"pydantic_core"}  # a part of pydantic


def test_the_client_imports_what_its_wheel_depends_on_and_nothing_else() -> None:
    found = {name for file in PACKAGE.rglob("*.py") for name in imported(file.read_text())}
    assert found - sys.stdlib_module_names - {"opensession_client"} - dependencies() == set()
    assert dependencies() - found == set()


def test_the_server_does_not_import_the_client() -> None:
    assert [file for file in (ROOT / "app").rglob("*.py") if "opensession_client" in set(imported(file.read_text()))] == []


def test_an_import_is_found_wherever_it_stands() -> None:
    assert set(imported("import a.b\nfrom c.d import e\ndef f():\n    import g, h\nfrom . import i")) == {"a", "c", "g", "h"}
