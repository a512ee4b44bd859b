"""The client stands apart from the server: it imports what its wheel depends on, and the server does not import it."""

import ast
import sys
import tomllib

from source_trees import APP, ROOT, imported_by, trees_below

PROJECT = tomllib.loads((ROOT / "client" / "pyproject.toml").read_text())["project"]


def packages(tree: ast.AST) -> set[str]:
    """The top ones that it imports."""
    return {name.partition(".")[0] for name in imported_by(tree)}


def dependencies() -> set[str]:
    names = {requirement.partition(">")[0].replace("-", "_") for requirement in PROJECT["dependencies"]}
    return names | {"pydantic_core"}  # a part of pydantic


def test_the_client_imports_what_its_wheel_depends_on_and_nothing_else() -> None:
    found = {name for tree in trees_below(ROOT / "client" / "opensession_client").values() for name in packages(tree)}
    assert found - sys.stdlib_module_names - {"opensession_client"} - dependencies() == set()
    assert dependencies() - found == set()


def test_the_server_does_not_import_the_client() -> None:
    assert [file for file, tree in trees_below(APP).items() if "opensession_client" in packages(tree)] == []


def test_an_import_is_found_wherever_it_stands() -> None:
    code = "import a.b\nfrom c.d import e\ndef f():\n    import g, h\nfrom . import i"
    assert packages(ast.parse(code)) == {"a", "c", "g", "h"}
