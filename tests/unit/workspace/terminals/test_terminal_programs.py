"""What runs in a terminal, from what a client asks for; what is kept of what it printed, and positions in that."""

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sandboxed import needs_sandbox, sandbox_of

from app.project.sandbox.sandbox import OFF
from app.project.sandbox.scope import SandboxWorkspace
from app.schema.errors import BadRequest, DirectoryForbidden
from app.schema.terminal import PtyInput
from app.settings import Settings
from app.workspace.terminals.programs import TerminalProgram, TerminalPrograms
from app.workspace.terminals.terminal import PIECE_BYTES, Scrollback

PROGRAMS = TerminalPrograms(OFF, "/bin/bash", lambda: {"PATH": os.environ["PATH"], "TERM": "dumb"})


@pytest.fixture
def workspace(tmp_path: Path) -> SandboxWorkspace:
    """A directory `part` of the checkout `project`, beside `other`."""
    for name in ("project/part/deep", "other"):
        (tmp_path / name).mkdir(parents=True)
    return SandboxWorkspace(tmp_path / "project" / "part", tmp_path / "project")


def made(workspace: SandboxWorkspace, **wanted: Any) -> TerminalProgram:
    return PROGRAMS.make(PtyInput.model_validate(wanted), workspace, lambda _real: True)


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({}, ["/bin/bash", "-l"]),
        ({"command": ""}, ["/bin/bash", "-l"]),
        ({"command": "sh"}, ["sh", "-l"]),
        ({"command": "sh", "args": ["-c", "true"]}, ["sh", "-c", "true"]),
        ({"command": "cat"}, ["cat"]),
    ],
)
def test_a_shell_is_a_login_shell_unless_it_is_told_what_to_do(
    workspace: SandboxWorkspace, wanted: dict[str, Any], words: list[str]
) -> None:
    """The environment is that of commands with what the client adds."""
    found = made(workspace, env={"A": "b=c"}, **wanted)
    assert [found.command, *found.args] == words == list(found.program.argv)
    own = {"A": "b=c", "TERM": "xterm-256color", "PATH": os.environ["PATH"]}
    environment = found.program.env or {}
    assert environment == {**own, "OPENCODE_TERMINAL": environment["OPENCODE_TERMINAL"]}


@pytest.mark.parametrize("command", ["no-such-program", "./none", "c\0at"])
def test_programs_that_are_none_are_refused(workspace: SandboxWorkspace, command: str) -> None:
    with pytest.raises(BadRequest):
        made(workspace, command=command)


@pytest.mark.parametrize(
    ("wanted", "found"), [(None, "project/part"), ("deep", "project/part/deep"), ("..", "project"), ("@/project", "project")]
)
def test_it_starts_within_the_directory_or_its_checkout(
    workspace: SandboxWorkspace, tmp_path: Path, wanted: str | None, found: str
) -> None:
    started = made(workspace, cwd=wanted and wanted.replace("@", str(tmp_path)))
    assert started.cwd == started.program.cwd == tmp_path / found


@pytest.mark.parametrize("wanted", ["/", "/etc", "../..", "../../other", "deep/../../../other", "link", "link/x"])
def test_it_starts_nowhere_else(workspace: SandboxWorkspace, tmp_path: Path, wanted: str) -> None:
    (workspace.directory / "link").symlink_to(tmp_path / "other")
    with pytest.raises(DirectoryForbidden):
        made(workspace, cwd=wanted)


def test_nor_where_its_user_may_not_work(workspace: SandboxWorkspace) -> None:
    def enters(real: str) -> bool:
        return real.startswith(str(workspace.directory))

    with pytest.raises(DirectoryForbidden):
        PROGRAMS.make(PtyInput(cwd=".."), workspace, enters)
    assert PROGRAMS.make(PtyInput(cwd="deep"), workspace, enters)


@needs_sandbox
def test_what_starts_the_sandbox_sees_none_of_the_clients_variables(workspace: SandboxWorkspace, tmp_path: Path) -> None:
    """`LD_PRELOAD` would run a library of the project outside of it."""
    programs = TerminalPrograms(sandbox_of(Settings(data_dir=tmp_path / "data")), "/bin/bash", lambda: {"PATH": "/usr/bin"})
    program = programs.make(PtyInput(env={"LD_PRELOAD": "/evil.so"}), workspace, lambda _real: True).program
    assert program.is_confined and "LD_PRELOAD=/evil.so" in (program.env or {}).values()
    assert all(name.startswith("OPENSESSION_INSIDE_") for name in program.env or {})


# What it printed.


def read_all(scrollback: Scrollback, position: int) -> str:
    text = ""
    while position < scrollback.end:
        piece, position = scrollback.read(position)
        assert piece
        text += piece
    return text


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=50)))
def test_positions_count_what_javascript_counts(pieces: list[str]) -> None:
    scrollback = Scrollback()
    for piece in pieces:
        scrollback.append(piece)
    text = "".join(pieces)
    assert scrollback.end == units(text)
    assert read_all(scrollback, 0) == text
    for index in range(len(text)):
        assert read_all(scrollback, units(text[:index])) == text[index:]


def test_of_more_than_is_kept_the_oldest_goes_and_positions_stay() -> None:
    scrollback = Scrollback(limit_bytes=20)
    for digit in "0123456789":
        scrollback.append(digit * 4)
    assert (scrollback.start, scrollback.end) == (30, 40)
    assert read_all(scrollback, 30) == "7788889999"
    assert read_all(scrollback, 36) == "9999"


def test_a_character_that_lost_its_first_half_is_replaced_and_counted() -> None:
    scrollback = Scrollback(limit_bytes=6)
    scrollback.append("a😀bc")
    assert (scrollback.start, scrollback.end) == (2, 5)
    assert scrollback.read(2) == ("\ufffdbc", 5)


def test_long_text_is_read_in_pieces_that_cut_no_character() -> None:
    scrollback = Scrollback()
    text = "a" + "😀" * (PIECE_BYTES // 4)
    scrollback.append(text)
    piece, position = scrollback.read(0)
    assert len(piece.encode("utf-16-le")) == PIECE_BYTES - 2 and position == PIECE_BYTES // 2 - 1
    assert piece + scrollback.read(position)[0] == text
