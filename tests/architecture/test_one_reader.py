"""What a project brings is read by app.util.project_files: in these rooms nobody else opens a file."""

import ast
from collections.abc import Iterator

from source_trees import APP, trees_below

ROOMS = ("project", "turn/context", "workspace/lsp", "tools/plugins")
METHODS = {"open", "read_text", "read_bytes", "fdopen", "scandir", "iterdir", "listdir", "glob", "iglob", "rglob"}
OPENERS = {"open(", *(f".{name}(" for name in METHODS)}
OTHERS = {
    "workspace/agents.py": "prompts of this package",
    "project/config/keys.py": "templates of this package",
    "project/config/loader.py": "key bindings of this package",
    "project/config/patch.py": "writes, in a folder that the reader has opened",
    "workspace/lsp/client.py": "a pipe",
    "project/sandbox/git.py": "the processes of the machine",
    "project/sandbox/git_repository.py": "the names in a git directory",
    "project/sandbox/machine.py": "what there is on the machine",
    "project/sandbox/sandbox.py": "the server's own directories",
    "project/snapshot/capture.py": "the names in a checkout",
    "project/snapshot/extent.py": "the names in a directory",
    "project/snapshot/lock.py": "the server's own locks",
    "project/snapshot/maintenance.py": "the server's own repositories",
    "project/snapshot/repository.py": "the server's own repository",
    "project/snapshot/restore.py": "files of the project, from the open directory on and without links",
    "workspace/instances.py": "a method named open",
    "workspace/workspaces.py": "the server's own notes",
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
    trees |= {f"workspace/{name}": tree for name, tree in trees_below(APP / "workspace").items() if "/" not in name}
    assert {name for name, tree in trees.items() if not OPENERS.isdisjoint(calls(tree))} - OTHERS.keys() == set()


def test_another_way_to_open_one_is_found() -> None:
    found = {*calls(ast.parse("Path('a').read_text()\nwith open('b'): pass\nos.scandir('c')"))}
    assert found >= {".read_text(", "open(", ".scandir("}
