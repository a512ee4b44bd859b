"""No function of the product is too long or too deep to read in one look."""

import ast
from collections.abc import Iterator

from source_trees import APP, ROOT, tree_of

MAX_LINES = 48
MAX_NESTING = 4

Function = ast.FunctionDef | ast.AsyncFunctionDef
BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)


def functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def nesting(node: ast.AST, depth: int = 0) -> int:
    """How many blocks stand inside each other; an `elif` is as deep as its `if`, an inner function is counted by itself."""
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Function | ast.Lambda):
            continue
        is_elif = isinstance(node, ast.If) and child in node.orelse
        deepest = max(deepest, nesting(child, depth + (isinstance(child, BLOCKS) and not is_elif)))
    return deepest


def lines(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def oversized(tree: ast.Module, name: str) -> list[str]:
    return [
        f"{name}:{function.lineno} {function.name}: {lines(function)} lines, nesting {nesting(function)}"
        for function in functions(tree)
        if lines(function) > MAX_LINES or nesting(function) > MAX_NESTING
    ]


def test_functions_are_short_and_flat() -> None:
    files = [*APP.rglob("*.py"), *(ROOT / "client").rglob("*.py"), ROOT / "migrations" / "env.py"]
    assert [found for file in files for found in oversized(tree_of(file), str(file.relative_to(ROOT)))] == []


def test_a_long_or_deep_function_is_found_and_a_chain_of_elifs_is_not_deep() -> None:
    long = "def f():\n" + "    pass\n" * MAX_LINES
    deep = "def f():\n" + "".join("    " * level + "if x:\n" for level in range(1, 6)) + "    " * 6 + "pass\n"
    chain = "def f():\n    if x:\n        pass\n" + "    elif y:\n        pass\n" * 8
    assert [len(oversized(ast.parse(source), "it")) for source in (long, deep, chain)] == [1, 1, 0]
