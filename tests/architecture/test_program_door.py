"""Programs that run someone else's words go through the sandbox: nothing else starts processes but what is listed here."""

import ast
from collections.abc import Iterator

from source_trees import APP, imported_by, trees_below

STARTERS = {"create_subprocess_exec", "create_subprocess_shell", "Popen", "stdio_client", "run_process", "open_process"}
MODULES = {"subprocess", "pty"}
OWN_PROGRAMS = {
    "cli/checks.py": "a second server, to try locks with",
    "project/sandbox/machine.py": "the trial of the sandbox",
    "tools/process.py": "what app.project.sandbox.scope describes",
    "workspace/terminals/terminal.py": "what app.project.sandbox.scope describes",
    "project/sandbox/git.py": "git, in the sandbox: what app.project.sandbox.scope describes",
    "workspace/lsp/client.py": "what app.project.sandbox.scope describes, as lsp/servers.py asks for it",
    "tools/mcp/stdio.py": "what app.project.sandbox.scope describes, as mcp/stdio.py asks for it",
    "turn/intake/command.py": "what app.project.sandbox.scope describes",
}
PLAIN_PROGRAMS = {"project/sandbox/sandbox.py"}
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


def calls_in(tree: ast.AST) -> set[str]:
    calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return {call.id if isinstance(call, ast.Name) else call.attr for call in calls if isinstance(call, ast.Name | ast.Attribute)}


def first_words(tree: ast.AST) -> set[object]:
    """The first word of each list, which may be a command line."""
    lists = (node.elts for node in ast.walk(tree) if isinstance(node, ast.List) and node.elts)
    return {words[0].value for words in lists if isinstance(words[0], ast.Constant)}


def test_processes_are_started_in_the_listed_places_alone() -> None:
    found = {name for name, tree in trees_below(APP).items() if names_in(tree) & (STARTERS | MODULES)}
    assert found == set(OWN_PROGRAMS)


def test_a_program_is_made_by_the_door() -> None:
    assert {name for name, tree in trees_below(APP).items() if "Program" in calls_in(tree)} == PLAIN_PROGRAMS


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
    assert calls_in(ast.parse("Program(['x'], cwd)")) == {"Program"}
