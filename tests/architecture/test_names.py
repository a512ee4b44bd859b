"""Names that lead somewhere: a class name exists once, and each package says what lives in it and where to begin."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_trees import APP, ROOT, tree_of

PACKAGES = sorted(file.parent for file in APP.rglob("__init__.py"))
ROOMS = [package for package in PACKAGES if package.parent == APP]


def types(file: Path) -> Iterator[tuple[str, int, str]]:
    """Name, line and definition of each class, and of the types that a module names: `Decision = Allowed | Forbidden`."""
    tree = tree_of(file)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name, node.lineno, f"{file}:{node.lineno}"
    for statement in tree.body:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if re.match("_?[A-Z][a-z]", name) and not is_type_variable(
                value
            ):
                yield name, statement.lineno, ast.unparse(value)


def is_type_variable(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "TypeVar"


def repeated_types(folder: Path) -> dict[str, list[str]]:
    """Names that stand for different things. A leading underscore makes no other name: both are read as the same word."""
    places: dict[str, list[str]] = defaultdict(list)
    definitions: dict[str, set[str]] = defaultdict(set)
    for file in sorted(folder.rglob("*.py")):
        for name, line, definition in types(file):
            places[name.lstrip("_")].append(f"{file.relative_to(folder)}:{line}")
            definitions[name.lstrip("_")].add(definition)
    return {name: places[name] for name, found in definitions.items() if len(found) > 1}


def missing_modules(package: Path, text: str) -> list[str]:
    """The modules and packages that a package's docstring names and that do not exist."""
    named = [
        *(package / name for name in re.findall(r"`([\w/]+\.py|[\w/]+/)`", text)),
        *(ROOT / name.replace(".", "/") for name in re.findall(r"`(app(?:\.\w+)+)`", text)),
    ]
    return [str(path.relative_to(ROOT)) for path in named if not path.exists() and not path.with_suffix(".py").exists()]


def test_the_name_of_a_class_or_type_is_one_things_name() -> None:
    assert repeated_types(APP) == {}


def test_a_repeated_name_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class Step:\n    pass\n\nKind = int\nJson = dict\n")
    (tmp_path / "b.py").write_text("class _Step:\n    pass\n\nKind = str\nJson = dict\n")
    assert repeated_types(tmp_path) == {"Step": ["a.py:1", "b.py:1"], "Kind": ["a.py:4", "b.py:4"]}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: str(package.relative_to(ROOT)))
def test_a_package_says_what_lives_there(package: Path) -> None:
    text = ast.get_docstring(tree_of(package / "__init__.py")) or ""
    assert text
    assert missing_modules(package, text) == []
    assert package not in ROOMS or package.name == "util" or re.search(r"\bBegin at `", text), "it names the module to begin at"


def test_a_docstring_that_names_no_module_is_found() -> None:
    assert missing_modules(APP / "turn", "Begin at `turn.py` and `gone.py`; see `app.turn.context`, `app.gone`.") == [
        "app/turn/gone.py",
        "app/gone",
    ]
