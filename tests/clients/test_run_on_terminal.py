"""`opensession run` on a terminal: what its screen shows, what it asks, and Ctrl-C."""

import json
import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from doc_snippets import blocks, matches
from launcher import opensession
from running_server import ROOT, clean_environment, needed, new_workspace, serving_here, this_checkout
from terminal import Terminal, terminal

SLOW = {"turns": [[{"text": "Let me think."}, {"sleep": 3600}]]}
PERMISSION = "? May the agent do this: external_directory /etc/*"


@contextmanager
def running(directory: Path, *arguments: str, **environment: str) -> Iterator[Terminal]:
    """A command on a terminal, which shows its exit code when it has ended."""
    needed("tmux")
    workspace, home = directory / "workspace", directory / "home"
    if not workspace.exists():
        new_workspace(workspace)
        home.mkdir()
    script = directory / "run.sh"
    script.write_text(f'{opensession()} run "$@"\necho "code $?"\nexec sleep 3600\n')
    own = {"OPENSESSION_DATA_DIR": str(directory / "data"), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "SHELL": "/bin/sh"}
    prepared = clean_environment(home, **this_checkout()[1], **own, **environment)
    with terminal(["bash", str(script), *arguments], workspace, prepared) as opened:
        yield opened


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """The path of a script whose model does not end."""
    path = tmp_path / "slow.json"
    path.write_text(json.dumps(SLOW))
    return str(path)


def test_tools_and_differences_are_shown_as_the_documentation_has_it(tmp_path: Path) -> None:
    (block,) = [each for each in blocks((ROOT / "docs" / "cli.md").read_text()) if each.kind == "text terminal"]
    command, shown = block.code.split("\n", 1)
    with running(tmp_path, *shlex.split(command)[3:]) as screen:
        seen = screen.wait_for("code 0")
    assert matches(shown, seen.partition("code 0")[0])


@pytest.mark.parametrize(("key", "end", "code"), [("y", "`read` succeeded", 0), ("n", "✗ read /etc/hosts", 1)])
def test_a_permission_is_asked_for(tmp_path: Path, key: str, end: str, code: int) -> None:
    with running(tmp_path, "read /etc/hosts") as screen:
        screen.wait_for(PERMISSION, "y: once, a: always (always: /etc/*), n: no >")
        screen.type("what?")
        screen.press("Enter")
        screen.wait_until(lambda shown: shown.count(PERMISSION) == 2, "the request again after an answer that is none")
        screen.type(key)
        screen.press("Enter")
        screen.wait_for(end, f"code {code}")


def test_a_question_is_asked(tmp_path: Path) -> None:
    with running(tmp_path, "ask Which colour: red, blue") as screen:
        screen.wait_for("? Which colour", "1. red", "2. blue")
        screen.type("2")
        screen.press("Enter")
        screen.wait_for("blue", "code 0")


def test_a_text_is_shown_while_it_streams_and_ctrl_c_stops_the_turn(tmp_path: Path, slow: str) -> None:
    with running(tmp_path, "x", OPENSESSION_SCRIPT=slow) as screen:
        screen.wait_for("Let me think.", without="code")
        screen.press("C-c")
        screen.wait_for("Stopping the turn; Ctrl-C again quits at once.", "code 130")


def test_ctrl_c_stops_what_asks(tmp_path: Path) -> None:
    with running(tmp_path, "read /etc/hosts") as screen:
        screen.wait_for(PERMISSION)
        screen.press("C-c")
        screen.wait_for("code 130")


def test_a_second_ctrl_c_quits_where_the_server_does_not_answer(tmp_path: Path, slow: str) -> None:
    with serving_here(tmp_path / "far", OPENSESSION_SCRIPT=slow) as server:
        with running(tmp_path, "--attach", server.base, "x") as screen:
            screen.wait_for("Let me think.")
            os.kill(server.process.pid, signal.SIGSTOP)
            try:
                screen.press("C-c")
                screen.wait_for("Stopping the turn", without="code")
                screen.press("C-c")
                screen.wait_for("code 130")
            finally:
                os.kill(server.process.pid, signal.SIGCONT)
