"""What the pages for developers say of the code is there: names in inline code lead somewhere.

    `app/turn/turn.py`, `tests/flows/`          a file or folder of the repository
    `app/turn/turn.py:Turn.run`                 a function, class, method or constant in a file
    `write.py`, `wire/`                         a file or folder of that name in `app` or at the top
    `Turn`, `Turn.run`                          a class or type of `app`, a method or attribute; class names exist once there

Other inline code (routes, events, commands, words to avoid) is no name of code.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from doc_snippets import prose
from running_server import ROOT

NAMED = {"docs/glossary.md": 50, "docs/architecture.md": 100, "CONTRIBUTING.md": 15}
"""The pages, each with a number of references that it has at least."""

_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_FILE = re.compile(r"((?:[\w.-]+/)*[\w-][\w.-]*\.(?:py|md|toml|txt|yaml|mjs|mako)|(?:[\w.-]+/)+)(?::([A-Za-z_][\w.]*))?")
_CLASS = re.compile(r"(?:_?[A-Z][a-z]\w*)(?:\.\w+)?")


def references(page: str) -> list[str]:
    return [span for span in _INLINE.findall(prose(page)) if _FILE.fullmatch(span) or _CLASS.fullmatch(span)]


def dead_references(page: str) -> list[str]:
    return [reference for reference in references(page) if not _exists(reference)]


def _exists(reference: str) -> bool:
    file = _FILE.fullmatch(reference)
    if file is None:
        return reference in _names_of_app()
    path, name = ROOT / file[1], file[2]
    if name is not None:
        return path.is_file() and name in _names(path)
    return path.exists() or ("/" not in file[1].rstrip("/") and any((ROOT / "app").rglob(file[1])))


@cache
def _names_of_app() -> frozenset[str]:
    """Of its modules, without functions."""
    trees = (_tree(file) for file in (ROOT / "app").rglob("*.py"))
    return frozenset(name for tree in trees for name in _names_in(tree.body) if _CLASS.fullmatch(name))


@cache
def _names(file: Path) -> frozenset[str]:
    return frozenset(_names_in(_tree(file).body))


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def _names_in(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.ClassDef():
                yield node.name
                yield from (f"{node.name}.{name}" for name in (*_names_in(node.body), *_attributes(node)))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign():
                yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _attributes(of: ast.ClassDef) -> Iterator[str]:
    """Those that its methods set: `self.blocked = False`."""
    for node in ast.walk(of):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name


@pytest.mark.parametrize("page", NAMED)
def test_every_name_of_code_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text()
    assert dead_references(text) == []
    assert len(references(text)) >= NAMED[page]


def test_a_renamed_function_class_or_file_is_noticed() -> None:
    text = """`app/turn/turn.py:Turn.run` `app/turn/` `Turn.run` `GET /session` `message.updated` `ask`
    `app/turn/turn.py:Turn.gone` `app/turn/gone.py` `Turn.gone` `GoneTurn` `app/gone/`
    `tests/docs/test_docs_references.py:test_gone`"""
    assert dead_references(text) == [
        "app/turn/turn.py:Turn.gone",
        "app/turn/gone.py",
        "Turn.gone",
        "GoneTurn",
        "app/gone/",
        "tests/docs/test_docs_references.py:test_gone",
    ]
    assert len(references(text)) == 9
