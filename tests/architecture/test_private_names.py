"""No private name of a library is used: what a library does not promise, its next release may change."""

import ast
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import getmembers, isclass
from pathlib import Path
from types import ModuleType

import pytest
from source_trees import APP, ROOT, tree_of

DOCUMENTED = frozenset({"_asdict", "_make", "_replace", "_fields", "_exit"})
"""With an underscore that does not make them private: of named tuples, which must not clash with fields, and `os._exit`."""

EXCEPTIONS = {
    "app/tools/mcp/client.py: mcp.client._transport": "the SDK names the types of a transport's streams there alone",
    "app/tools/mcp/stdio.py: mcp.client._transport": "the same",
}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name.strip("_") != "" and name not in DOCUMENTED


def own_names(tree: ast.AST) -> Iterator[str]:
    """What a module defines, and the attributes that its classes give themselves."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(attr=name, value=ast.Name(id="self" | "cls"), ctx=ast.Store()):
                yield name


def imported(node: ast.AST) -> Iterator[str]:
    """Private modules and names that are imported from elsewhere."""
    match node:
        case ast.ImportFrom(module=str(module), names=names) if module.partition(".")[0] != "app":
            if any(map(is_private, module.split("."))):
                yield module
            yield from (f"{module}.{each.name}" for each in names if is_private(each.name))
        case ast.Import(names=names):
            yield from (each.name for each in names if any(map(is_private, each.name.split("."))))


def named_by(node: ast.AST, in_app: frozenset[str], in_module: frozenset[str]) -> Iterator[str]:
    """Private attributes that nothing here has: `self` may have them of a base class, others of the module."""
    match node:
        case ast.Attribute(attr=name, value=ast.Name(id="self" | "cls")) if is_private(name) and name not in in_app:
            yield f"self.{name}"
        case ast.Attribute(attr=name, value=value) if is_private(name) and name not in in_module | _of_self(value, in_app):
            yield ast.unparse(node)
        case ast.Call(
            func=ast.Name(id="getattr" | "setattr" | "hasattr" | "delattr"), args=[_, ast.Constant(value=str(name)), *_]
        ):
            if is_private(name) and name not in in_module:
                yield ast.unparse(node)


def _of_self(value: ast.expr, in_app: frozenset[str]) -> frozenset[str]:
    return in_app if isinstance(value, ast.Name) and value.id in ("self", "cls") else frozenset()


def private_uses(folder: Path) -> list[str]:
    trees = {file: tree_of(file) for file in sorted(folder.rglob("*.py"))}
    own = {file: frozenset(own_names(tree)) for file, tree in trees.items()}
    everywhere = frozenset[str]().union(*own.values())
    return [
        f"{file.relative_to(folder.parent)}: {found}"
        for file, tree in trees.items()
        for node in ast.walk(tree)
        for found in (*imported(node), *named_by(node, everywhere, own[file]))
    ]


def modules() -> Iterator[ModuleType]:
    for file in sorted(APP.rglob("*.py")):
        if file.name != "__main__.py":
            yield import_module(".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))


MADE_BY_LANGUAGE = ("builtins", "typing", "abc", "enum")
"""What these give each class that is made, no class here has written."""


def overridden(kind: type) -> Iterator[str]:
    """Private names of a library's class that one of its subclasses here has too."""
    for base in kind.__mro__[1:]:
        if base.__module__.partition(".")[0] not in ("app", *MADE_BY_LANGUAGE):
            shared = vars(kind).keys() & vars(base).keys()
            yield from (f"{base.__module__}.{base.__name__}.{name}" for name in shared if is_private(name))


def overrides(module: ModuleType, made_here: Callable[[object], bool]) -> Iterator[str]:
    for _, kind in getmembers(module, made_here):
        own = {name for name in overridden(kind) if not name.endswith((*_OF_PROTOCOLS, *_OF_ABC))}
        yield from (f"{module.__name__}.{kind.__name__}: {name}" for name in sorted(own))


_OF_PROTOCOLS = ("._is_protocol", "._is_runtime_protocol")
_OF_ABC = ("._abc_impl",)


def test_no_private_name_of_a_library_is_used() -> None:
    assert sorted(set(private_uses(APP))) == sorted(EXCEPTIONS)


def test_no_private_name_of_a_library_is_overridden() -> None:
    found = [
        each
        for module in modules()
        for each in overrides(module, lambda kind, name=module.__name__: isclass(kind) and kind.__module__ == name)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "from uvicorn import _types",
        "from uvicorn._types import Scope",
        "import uvicorn._types",
        "def used(server): return server._serve()",
        "class A:\n    def used(self): return self._serve()",
        "def used(server): return getattr(server, '_serve')",
        "def used(server): server._state = 1",
    ],
)
def test_a_private_name_is_found(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.py").write_text(f"{line}\n")
    assert len(private_uses(tmp_path)) == 1


def test_names_of_its_own_are_not(tmp_path: Path) -> None:
    own = "class A:\n    def __init__(self, other):\n        self._b = other._b\n        self.row = other.row._asdict()\n"
    (tmp_path / "a.py").write_text(own)
    (tmp_path / "b.py").write_text("from app.a import _c\n\n\nclass B(A):\n    def read(self):\n        return self._b\n")
    assert private_uses(tmp_path) == []
