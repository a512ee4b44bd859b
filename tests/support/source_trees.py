"""The syntax trees of the repository's Python files; each is parsed once in a process."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
APP = ROOT / "app"


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def trees_below(folder: Path) -> Mapping[str, ast.Module]:
    """By their paths from the folder on."""
    return {str(file.relative_to(folder)): tree_of(file) for file in sorted(folder.rglob("*.py"))}


def imported_by(tree: ast.AST) -> Iterator[str]:
    """The modules that are imported anywhere in it, but relative ones."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), level=0):
                yield module
            case ast.Import(names=names):
                yield from (each.name for each in names)
