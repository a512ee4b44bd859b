"""What only some modules do: open files of a project, start processes, import what another wheel depends on."""

import ast
import sys
import tomllib
from collections.abc import Iterator

from source_trees import APP, ROOT, imported_by, trees_below

# What a project brings is read by app.util.project_files: in these rooms nobody else opens a file.

ROOMS = ("project", "turn/context", "workspace/lsp", "tools/plugins")
METHODS = {"open", "read_text", "read_bytes", "fdopen", "scandir", "iterdir", "listdir", "glob", "iglob", "rglob"}
OPENERS = {"open(", *(f".{name}(" for name in METHODS)}
OTHERS = {
    "workspace/agents.py": "prompts of this package",
    "project/config/keys.py": "templates of this package",
    "project/config/loader.py": "key bindings of this package",
    "project/config/patch.py": "writes, in a folder that the reader has opened",
    "project/sandbox/git_repository.py": "the names in a git directory",
    "project/sandbox/machine.py": "what there is on the machine",
    "project/sandbox/sandbox.py": "the server's own directories",
    "project/snapshot/capture.py": "the names in a checkout",
    "project/snapshot/extent.py": "the names in a directory",
    "project/snapshot/lock.py": "the server's own locks",
    "project/snapshot/maintenance.py": "the server's own repositories",
    "project/snapshot/repository.py": "the server's own repository",
    "project/snapshot/restore.py": "files of the project, from the open directory on and without links",
    "workspace/attached_file.py": "what a user attaches, judged by what was opened",
    "workspace/instances.py": "a method named open",
    "workspace/workspaces.py": "the server's own notes",
}


def calls(tree: ast.AST) -> Iterator[str]:
    """`open(` by its name, `.open(` of something."""
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


# Programs that run someone else's words go through the sandbox: nothing else starts processes but what is listed here.

STARTERS = {"create_subprocess_exec", "create_subprocess_shell", "Popen", "stdio_client", "run_process", "open_process"}
MODULES = {"subprocess", "pty"}
OWN_PROGRAMS = {
    "cli/checks.py": "a second server, to try locks with",
    "project/sandbox/machine.py": "the trial of the sandbox",
    "tools/process.py": "what app.project.sandbox.scope describes",
    "project/sandbox/git.py": "git, in the sandbox: what app.project.sandbox.scope describes",
    "workspace/commands.py": "what app.project.sandbox.scope describes",
    "util/data_files.py": "rm, which follows no link",
}
PLAIN_PROGRAMS = {"project/sandbox/sandbox.py", "tools/builtin/webfetch.py"}
"""Where a Program may be made."""


def names_in(tree: ast.AST) -> set[str]:
    return {found for node in ast.walk(tree) for found in names_of(node)}


def names_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.ImportFrom(module=module, names=names):
            yield (module or "").partition(".")[0]
            yield from (name.name for name in names)
        case ast.Import(names=names):
            yield from (name.name.partition(".")[0] for name in names)


def first_words(tree: ast.AST) -> set[object]:
    """The first word of each list, which may be a command line."""
    lists = (node.elts for node in ast.walk(tree) if isinstance(node, ast.List) and node.elts)
    return {words[0].value for words in lists if isinstance(words[0], ast.Constant)}


def test_processes_are_started_in_the_listed_places_alone() -> None:
    found = {name for name, tree in trees_below(APP).items() if names_in(tree) & (STARTERS | MODULES)}
    assert found == set(OWN_PROGRAMS)


def test_a_program_is_made_by_the_door() -> None:
    assert {
        name for name, tree in trees_below(APP).items() if not {"Program(", ".Program("}.isdisjoint(calls(tree))
    } == PLAIN_PROGRAMS


def test_git_is_started_in_one_place() -> None:
    assert {name for name, tree in trees_below(APP).items() if "git" in first_words(tree)} == {"project/sandbox/git.py"}


def test_bubblewrap_is_started_in_one_place() -> None:
    """And tried in another; its arguments come from one module."""
    found = {name for name, tree in trees_below(APP).items() if "app.project.sandbox.bubblewrap" in imported_by(tree)}
    assert found == {"project/sandbox/sandbox.py", "project/sandbox/machine.py"}


def test_a_module_that_starts_a_process_is_found() -> None:
    starts = ("import subprocess", "from asyncio import create_subprocess_exec as start", "asyncio.create_subprocess_shell('x')")
    for text in starts:
        assert names_in(ast.parse(text)) & (STARTERS | MODULES), text
    assert {*calls(ast.parse("Program(['x'], cwd)"))} == {"Program("}


# The client stands apart from the server: it imports what its wheel depends on, and the server does not import it.

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
