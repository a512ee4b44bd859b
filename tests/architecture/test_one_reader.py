"""What a project brings is read by app.util.project_files: in these rooms nobody else opens a file."""

import ast
from collections.abc import Iterator

from source_trees import APP, trees_below

ROOMS = ("config", "context", "project", "workspace", "agent", "plugin", "snapshot", "sandbox", "lsp", "formatter")
METHODS = {"open", "read_text", "read_bytes", "fdopen", "scandir", "iterdir", "listdir", "glob", "iglob", "rglob"}
OPENERS = {"open(", *(f".{name}(" for name in METHODS)}
OTHERS = {
    "config/commands.py": "templates of this package",
    "config/loader.py": "key bindings of this package",
    "config/patch.py": "writes, in a folder that the reader has opened",
    "agent/definitions.py": "prompts of this package",
    "lsp/client.py": "a pipe",
    "sandbox/git.py": "the processes of the machine",
    "sandbox/git_repository.py": "the names in a git directory",
    "sandbox/machine.py": "what there is on the machine",
    "sandbox/sandbox.py": "the server's own directories",
    "snapshot/checkup.py": "the server's own repositories",
    "snapshot/collection.py": "the server's own repositories",
    "snapshot/extent.py": "the names in a directory",
    "snapshot/files.py": "files of the project, from the open directory on and without links",
    "snapshot/lock.py": "the server's own locks",
    "snapshot/repository.py": "the server's own repository",
    "snapshot/stat_cache.py": "the names in a checkout",
    "workspace/instances.py": "a method named open",
    "workspace/worktree_places.py": "the server's own notes",
}


def calls(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                yield f"{name}("
            case ast.Call(func=ast.Attribute(attr=name)):
                yield f".{name}("


def test_nobody_else_opens_a_file() -> None:
    trees = {f"{room}/{name}": tree for room in ROOMS for name, tree in trees_below(APP / room).items()}
    assert {name for name, tree in trees.items() if not OPENERS.isdisjoint(calls(tree))} - OTHERS.keys() == set()


def test_another_way_to_open_one_is_found() -> None:
    found = {*calls(ast.parse("Path('a').read_text()\nwith open('b'): pass\nos.scandir('c')"))}
    assert found >= {".read_text(", "open(", ".scandir("}
