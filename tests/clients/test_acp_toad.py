"""Toad 0.6.20 (PyPI `batrachian-toad`) on a terminal, with `opensession acp` as its agent, used by its keys.

For the long form. OPENSESSION_TEST_TOAD names the program `toad`: it needs Python 3.14, which Debian's sid has.
"""

import json
import os
import shlex
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from acp_editor import ASKS, EDITS, LOOKS, SLEEPS, TERMINAL, Desk, keep, stand_in_order
from long_form import LONG
from running_server import needed, new_workspace
from terminal import Terminal, terminal
from turns import bash, say

pytestmark = pytest.mark.skipif(not LONG, reason="for the long form, OPENSESSION_LONG=1")

TOAD = os.environ.get("OPENSESSION_TEST_TOAD")
LINES = 90
TAKES_KEYS = "Allow once/always"
"""In the footer, when a question has the keyboard."""
SETTINGS = {
    "sidebar": {"hide": True},
    "agent": {"thoughts": True},
    "tools": {"expand": "always"},
    "statistics": {"allow_collect": False},
}


class ToadDesk(Desk):
    def opened(self, *arguments: str) -> AbstractContextManager[Terminal]:
        return terminal([str(TOAD), *arguments, str(self.directory)], self.directory, self.environment(), lines=LINES)


@pytest.fixture
def desk(tmp_path: Path) -> ToadDesk:
    needed("tmux")
    if not TOAD:
        pytest.skip("OPENSESSION_TEST_TOAD names no Toad")
    desk = ToadDesk(new_workspace(tmp_path / "workspace"), tmp_path / "home", dict(TERMINAL))
    (desk.directory / "opencode.json").write_text('{"permission": {"bash": "ask", "edit": "ask"}}')
    config = desk.home / ".config" / "toad"
    config.mkdir(parents=True)
    (config / "toad.json").write_text(json.dumps(SETTINGS))
    return desk


def prompt(shown: Terminal, text: str) -> None:
    """When the place to write is there again: a question's answers take its place."""
    shown.wait_for("How can I help you today?")
    shown.type(text)
    shown.wait_for(text)
    shown.press("Enter")


def test_all_that_a_turn_may_bring_and_a_session_that_is_loaded(desk: ToadDesk) -> None:
    refused, end = bash("touch refused"), say("After the stop.")
    desk.script(LOOKS, EDITS, [say("The file says goodbye now.")], [refused], ASKS, [say("So be it.")], SLEEPS, [end])
    order = ["Look at a.txt", "Two words stand there.", "I read it", "read a.txt ✔", "echo hi ✔", "edit a.txt ✔", "goodbye now."]
    with desk.opened("acp", shlex.join(desk.command)) as shown:
        shown.wait_for("How can I help you today?", "Build")
        prompt(shown, "Look at a.txt and change it")
        keep("toad-1-permission", shown.wait_for("This runs a command: echo hi", "Reject", TAKES_KEYS))
        shown.type("a")
        keep("toad-2-diff", shown.wait_for("wishes to make the following changes", "goodbye"))
        shown.type("a")
        screen = shown.wait_for("The file says goodbye now.")
        keep("toad-3-turn", screen)
        assert stand_in_order(screen, *order)
        assert (desk.directory / "a.txt").read_text() == "goodbye\nworld\n"
        prompt(shown, "Run it")
        shown.wait_for("This runs a command: touch refused", TAKES_KEYS)
        shown.type("r")
        keep("toad-4-rejected", shown.wait_for("touch refused ▌failed▐"))
        prompt(shown, "Ask me")
        keep("toad-5-question", shown.wait_for("Which colour?", "blue: cold", "Do not answer", "a Allow once"))
        shown.press("Down", "Enter")
        shown.wait_for("So be it.", without="Do not answer")
        prompt(shown, "Sleep")
        shown.wait_for("This runs a command: touch begun, sleep 600", TAKES_KEYS)
        shown.type("a")
        shown.wait_until(lambda _: (desk.directory / "begun").exists(), "a command that runs")
        shown.press("Escape", "Escape")
        keep("toad-6-cancelled", shown.wait_for("sleep 600 ▌failed▐"))
        prompt(shown, "And now?")
        shown.wait_for("After the stop.")
    assert not (desk.directory / "refused").exists()
    with desk.opened() as shown:
        shown.wait_for("Choose your fighter")
        shown.press("C-r")
        shown.wait_for("Session Resume", str(desk.directory)[:20])
        shown.press("Enter")
        screen = shown.wait_for("After the stop.")
        keep("toad-7-loaded", screen)
        assert stand_in_order(screen, "So be it.", "I begin.", "And now?", "After the stop.")
