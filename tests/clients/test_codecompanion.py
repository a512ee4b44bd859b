"""CodeCompanion in Neovim on a terminal, with `opensession acp` as its agent: set up as docs/editors.md says, used by its keys.

For the long form. It needs Neovim 0.11 or newer, on the PATH or named by OPENSESSION_TEST_NVIM, and checkouts of two plugins:

- OPENSESSION_TEST_CODECOMPANION: olimorris/codecompanion.nvim at f1afd02, version 19.22.0
- OPENSESSION_TEST_PLENARY: nvim-lua/plenary.nvim at b9fd522
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from acp_editor import ASKS, EDITS, LOOKS, SLEEPS, TERMINAL, Desk, keep, stand_in_order
from doc_snippets import blocks
from long_form import LONG
from neovim import checkout, neovim_program
from running_server import ROOT, needed, new_workspace
from terminal import Terminal, terminal
from turns import bash, call, say

pytestmark = pytest.mark.skipif(not LONG, reason="for the long form, OPENSESSION_LONG=1")

OLDEST = (0, 11)
LINES = 120
ACCEPT, REJECT, STOP = "g2", "g3", "q"
CONNECTED = """
local chat = require("codecompanion").last_chat()
print(vim.wait(60000, function() return chat.acp_connection and chat.acp_connection:is_connected() end) and "agent is there")
"""
"""What is sent before stays in the chat."""
RESUME = """
local chat = require("codecompanion").last_chat()
require("codecompanion.interactions.chat.slash_commands.builtin.resume").new({ Chat = chat, config = {} }):execute()
"""
"""What `/resume` does in the menu of a completion plugin."""


@dataclass
class Companion(Desk):
    """Neovim's program, and the plugins."""

    nvim: str = ""
    plugins: tuple[str, ...] = ()

    @contextmanager
    def chat(self) -> Iterator[Terminal]:
        """Open and empty."""
        (recipe,) = [block.code for block in blocks((ROOT / "docs" / "editors.md").read_text()) if block.language == "lua"]
        setup = self.home / "init.lua"
        setup.write_text("".join(f'vim.opt.runtimepath:prepend("{path}")\n' for path in self.plugins) + recipe)
        command = [self.nvim, "-n", "-i", "NONE", "-u", str(setup), "-c", "CodeCompanionChat", "-c", "only"]
        with terminal(command, self.directory, self.environment(), lines=LINES) as opened:
            opened.wait_for("## Me", "Welcome to CodeCompanion")
            opened.type(f":lua {' '.join(CONNECTED.split())}")
            opened.press("Enter")
            opened.wait_for("agent is there", without=":lua")
            yield opened


@pytest.fixture(scope="module")
def installed() -> tuple[str, tuple[str, ...]]:
    needed("tmux")
    return neovim_program(OLDEST), tuple(checkout(f"OPENSESSION_TEST_{name}", "lua") for name in ("PLENARY", "CODECOMPANION"))


@pytest.fixture
def desk(installed: tuple[str, tuple[str, ...]], tmp_path: Path) -> Companion:
    directory, (nvim, plugins) = new_workspace(tmp_path / "workspace"), installed
    (directory / "opencode.json").write_text('{"permission": {"bash": "ask", "edit": "ask"}}')
    return Companion(directory, tmp_path / "home", dict(TERMINAL), nvim=nvim, plugins=plugins)


def prompt(shown: Terminal, text: str) -> None:
    shown.press("G", "A")
    shown.wait_for("-- INSERT --")
    shown.type(text)
    shown.press("Escape")
    shown.wait_for(text, without="-- INSERT --")  # an Enter right behind an Escape is another key
    shown.press("Enter")


def answer(shown: Terminal, key: str, selected: str, *, times: int) -> None:
    """`times`: how often that stands on the screen then."""
    shown.type(key)
    shown.wait_until(lambda screen: screen.count(f"You selected: {selected}") == times, f"{selected}, {times} times")


def until_ready(shown: Terminal, turns: int) -> str:
    return shown.wait_until(lambda screen: screen.count("## Me") == turns + 1, f"the end of turn {turns}")


def test_a_turn_is_shown_and_what_it_asks_is_answered(desk: Companion) -> None:
    end, refused = say("The file says goodbye now."), bash("touch refused")
    desk.script(LOOKS, EDITS, [call("write", filePath="new.txt", content="fresh\n")], [end], [refused])
    with desk.chat() as shown:
        prompt(shown, "Look at a.txt and change it")
        shown.wait_for("Execute: echo hi\n\nPlease select")
        answer(shown, ACCEPT, "Accept", times=1)
        keep("codecompanion-1-diff", shown.wait_for("Proposed edits for `a.txt`", "-hello", "+goodbye"))
        answer(shown, ACCEPT, "Accept", times=2)
        shown.wait_for("Proposed edits for `new.txt`", "+fresh")
        answer(shown, ACCEPT, "Accept", times=3)
        screen = until_ready(shown, 1)
        keep("codecompanion-2-turn", screen)
        order = [
            "### Reasoning",
            "Two words",
            "I read it",
            "Read: a.txt",
            "Execute: echo hi",
            "Edit: a.txt",
            "Edit: new.txt",
            "goodbye now.",
        ]
        assert stand_in_order(screen, *order)
        assert (desk.directory / "a.txt").read_text() == "goodbye\nworld\n"
        prompt(shown, "Run it")
        shown.wait_for("Execute: touch refused\n\nPlease select")
        answer(shown, REJECT, "Reject", times=1)
        keep("codecompanion-3-rejected", until_ready(shown, 2))
    assert not (desk.directory / "refused").exists() and (desk.directory / "new.txt").read_text() == "fresh\n"


def test_a_question_a_stopped_turn_and_a_session_that_is_resumed(desk: Companion) -> None:
    desk.script(ASKS, [say("So be it.")], SLEEPS, [say("After the stop.")])
    with desk.chat() as shown:
        prompt(shown, "Ask me")
        shown.wait_for("Which colour? red: warm")
        answer(shown, REJECT, "Reject", times=1)
        keep("codecompanion-4-question", shown.wait_for("Which colour? blue: cold"))
        answer(shown, ACCEPT, "Accept", times=1)
        shown.wait_for("So be it.")
        until_ready(shown, 1)
        prompt(shown, "Sleep")
        shown.wait_for("sleep 600\n\nPlease select")
        answer(shown, ACCEPT, "Accept", times=2)
        shown.wait_until(lambda _: (desk.directory / "begun").exists(), "a command that runs")
        shown.type(STOP)
        keep("codecompanion-5-cancelled", until_ready(shown, 2))
        prompt(shown, "And now?")
        shown.wait_for("After the stop.")
        until_ready(shown, 3)
    with desk.chat() as shown:
        shown.type(f":lua {' '.join(RESUME.split())}")
        shown.press("Enter")
        listed = shown.wait_for("Resume Session", "Ask me", "Type number")
        shown.type(next(line for line in listed.splitlines() if line.endswith("Ask me")).split(":")[0])
        shown.press("Enter")
        shown.wait_for("Resumed session: Ask me")
        shown.press("Enter")
        screen = shown.wait_for("After the stop.")
        keep("codecompanion-6-loaded", screen)
        assert stand_in_order(screen, "Ask me", "So be it.", "Sleep", "I begin.", "And now?", "After the stop.")
