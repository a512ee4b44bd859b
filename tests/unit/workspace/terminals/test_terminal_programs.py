"""What runs in a terminal, from what a client asks for."""

import os
from pathlib import Path

import pytest
from sandboxed import needs_sandbox, sandbox_of

from app.project.sandbox.sandbox import OFF
from app.project.sandbox.scope import SandboxWorkspace
from app.schema.errors import BadRequest, DirectoryForbidden
from app.schema.terminal import PtyInput
from app.settings import Settings
from app.workspace.terminals.programs import TerminalPrograms

PROGRAMS = TerminalPrograms(OFF, "/bin/bash", lambda: {"PATH": os.environ["PATH"], "TERM": "dumb"})


@pytest.fixture
def workspace(tmp_path: Path) -> SandboxWorkspace:
    """A directory `part` of the checkout `project`, beside `other`."""
    for name in ("project/part/deep", "other"):
        (tmp_path / name).mkdir(parents=True)
    return SandboxWorkspace(tmp_path / "project" / "part", tmp_path / "project")


def anywhere(_real: str) -> bool:
    return True


def test_a_shell_is_a_login_shell_unless_it_is_told_what_to_do(workspace: SandboxWorkspace) -> None:
    for wanted, words in (
        (PtyInput(), ["/bin/bash", "-l"]),
        (PtyInput(command=""), ["/bin/bash", "-l"]),
        (PtyInput(command="sh"), ["sh", "-l"]),
        (PtyInput(command="sh", args=["-c", "true"]), ["sh", "-c", "true"]),
        (PtyInput(command="cat"), ["cat"]),
    ):
        made = PROGRAMS.make(wanted, workspace, anywhere)
        assert [made.command, *made.args] == words == list(made.program.argv)


def test_the_environment_is_that_of_commands_with_what_the_client_adds(workspace: SandboxWorkspace) -> None:
    environment = PROGRAMS.make(PtyInput(env={"A": "b=c"}), workspace, anywhere).program.env or {}
    assert environment["A"] == "b=c" and environment["TERM"] == "xterm-256color"
    assert set(environment) == {"PATH", "TERM", "A", "OPENCODE_TERMINAL"}


@pytest.mark.parametrize("env", [{"": "x"}, {"A=B": "x"}, {"-S": "x"}, {"A": "x\0y"}, {"A\0": "x"}, {"1A": ""}])
def test_variables_that_are_none(workspace: SandboxWorkspace, env: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        PROGRAMS.make(PtyInput(env=env), workspace, anywhere)


@pytest.mark.parametrize(
    "wanted", [{"command": "no-such-program"}, {"command": "./none"}, {"command": "c\0at"}, {"args": ["\0"]}]
)
def test_programs_that_are_none(workspace: SandboxWorkspace, wanted: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        PROGRAMS.make(PtyInput.model_validate(wanted), workspace, anywhere)


def test_it_starts_within_the_directory_or_its_checkout(workspace: SandboxWorkspace, tmp_path: Path) -> None:
    for wanted, found in (
        (None, "project/part"),
        ("deep", "project/part/deep"),
        ("..", "project"),
        (str(tmp_path / "project"), "project"),
    ):
        made = PROGRAMS.make(PtyInput(cwd=wanted), workspace, anywhere)
        assert made.cwd == made.program.cwd == tmp_path / found


@pytest.mark.parametrize("wanted", ["/", "/etc", "../..", "../../other", "deep/../../../other", "link", "link/x"])
def test_it_starts_nowhere_else(workspace: SandboxWorkspace, tmp_path: Path, wanted: str) -> None:
    (workspace.directory / "link").symlink_to(tmp_path / "other")
    with pytest.raises(DirectoryForbidden):
        PROGRAMS.make(PtyInput(cwd=wanted), workspace, anywhere)


def test_nor_where_its_user_may_not_work(workspace: SandboxWorkspace, tmp_path: Path) -> None:
    def enters(real: str) -> bool:
        return real.startswith(str(workspace.directory))

    with pytest.raises(DirectoryForbidden):
        PROGRAMS.make(PtyInput(cwd=".."), workspace, enters)
    assert PROGRAMS.make(PtyInput(cwd="deep"), workspace, enters)


@pytest.mark.parametrize("wanted", ["none", "file", "x\0y"])
def test_nor_in_what_is_no_directory(workspace: SandboxWorkspace, wanted: str) -> None:
    (workspace.directory / "file").touch()
    with pytest.raises(BadRequest):
        PROGRAMS.make(PtyInput(cwd=wanted), workspace, anywhere)


@needs_sandbox
def test_what_starts_the_sandbox_sees_none_of_the_clients_variables(workspace: SandboxWorkspace, tmp_path: Path) -> None:
    """`LD_PRELOAD` would run a library of the project outside of it."""
    programs = TerminalPrograms(sandbox_of(Settings(data_dir=tmp_path / "data")), "/bin/bash", lambda: {"PATH": "/usr/bin"})
    program = programs.make(PtyInput(env={"LD_PRELOAD": "/evil.so"}), workspace, anywhere).program
    assert program.is_confined and "LD_PRELOAD=/evil.so" in (program.env or {}).values()
    assert all(name.startswith("OPENSESSION_INSIDE_") for name in program.env or {})
