"""Programs that run someone else's words go through the sandbox: nothing else starts processes but what is listed here."""

import ast
from collections.abc import Iterator
from pathlib import Path

APP = Path(__file__).parents[2] / "app"
STARTERS = {"create_subprocess_exec", "create_subprocess_shell", "Popen", "stdio_client", "run_process", "open_process"}
MODULES = {"subprocess", "pty"}
OWN_PROGRAMS = {
    "cli/checks.py": "a second server, to try locks with",
    "sandbox/machine.py": "the trial of the sandbox",
    "tool/process.py": "what app.sandbox.scope describes",
    "pty/terminal.py": "what app.sandbox.scope describes",
    "sandbox/git.py": "git, in the sandbox: what app.sandbox.scope describes",
    "lsp/client.py": "what app.sandbox.scope describes, as lsp/servers.py asks for it",
    "mcp/stdio.py": "what app.sandbox.scope describes, as mcp/stdio.py asks for it",
    "intake/command.py": "what app.sandbox.scope describes",
}
PLAIN_PROGRAMS = {"sandbox/sandbox.py"}
"""Where a Program may be made."""


def names_in(file: Path) -> set[str]:
    return {found for node in ast.walk(ast.parse(file.read_text())) for found in names_of(node)}


def names_of(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.ImportFrom(module=module, names=names):
            yield (module or "").partition(".")[0]
            yield from (name.name for name in names)
        case ast.Import(names=names):
            yield from (name.name.partition(".")[0] for name in names)


def calls_in(file: Path) -> set[str]:
    calls = (node.func for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call))
    return {call.id if isinstance(call, ast.Name) else call.attr for call in calls if isinstance(call, ast.Name | ast.Attribute)}


def files() -> dict[str, Path]:
    return {str(path.relative_to(APP)): path for path in APP.rglob("*.py")}


def test_processes_are_started_in_the_listed_places_alone() -> None:
    found = {name for name, path in files().items() if names_in(path) & (STARTERS | MODULES)}
    assert found == set(OWN_PROGRAMS)


def test_a_program_is_made_by_the_door() -> None:
    assert {name for name, path in files().items() if "Program" in calls_in(path)} == PLAIN_PROGRAMS


def first_words(file: Path) -> set[object]:
    """The first word of each list, which may be a command line."""
    lists = (node.elts for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.List) and node.elts)
    return {words[0].value for words in lists if isinstance(words[0], ast.Constant)}


def test_git_is_started_in_one_place() -> None:
    assert {name for name, path in files().items() if "git" in first_words(path)} == {"sandbox/git.py"}


def test_bubblewrap_is_started_in_one_place() -> None:
    """And tried in another; its arguments come from one module."""
    found = {name for name, path in files().items() if "from app.sandbox.bubblewrap import" in path.read_text()}
    assert found == {"sandbox/sandbox.py", "sandbox/machine.py"}


def test_a_module_that_starts_a_process_is_found(tmp_path: Path) -> None:
    code = tmp_path / "code.py"
    for text in (
        "import subprocess",
        "from asyncio import create_subprocess_exec as start",
        "asyncio.create_subprocess_shell('x')",
    ):
        code.write_text(text)
        assert names_in(code) & (STARTERS | MODULES), text
    code.write_text("Program(['x'], cwd)")
    assert calls_in(code) == {"Program"}
