"""OpenCode's terminal clients are steered by what docs/ide-plugins.md shows, as it stands there, and obey on their screens."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from doc_snippets import SHOWN_BASE, blocks
from model_server import ModelServer
from opencode_program import VERSIONS, asking, attached, installed
from running_server import ROOT, serving, this_checkout
from terminal import Terminal

ANSWER = "It holds two words."


@dataclass(frozen=True)
class Steered:
    """A terminal client that listens, and its server."""

    terminal: Terminal
    model: ModelServer
    base: str

    def steer(self, path: str, body: Any = None) -> None:
        assert self.post(f"/tui/{path}", body or {}) is True

    def shows(self, message: str) -> bool:
        """False: whether it is shown is to be seen."""
        self.steer("show-toast", {"message": message, "variant": "info"})
        return False

    def post(self, path: str, body: Any) -> Any:
        return httpx2.post(f"{self.base}{path}", json=body, timeout=180).raise_for_status().json()


@pytest.fixture(scope="module", params=VERSIONS)
def program(request: pytest.FixtureRequest, node_modules: Path) -> Path:
    return installed(node_modules, request.param)


@pytest.fixture
def steered(program: Path, model: ModelServer, tmp_path: Path) -> Iterator[Steered]:
    model.think_seconds = 1  # the client loads a new session beside its first events, and forgets what it heard meanwhile
    with serving(this_checkout()[0], tmp_path, asking(model)) as server, attached(program, server, tmp_path / "home") as opened:
        client = Steered(opened, model, server.base)
        opened.wait_until(lambda screen: "It listens." in screen or client.shows("It listens."), "that it follows the events")
        yield client


def documented() -> dict[str, str]:
    """The requests of the page, by their paths, each as a program of its own."""
    [block] = [block for block in blocks((ROOT / "docs" / "ide-plugins.md").read_text()) if block.kind == "sh steering"]
    lines = block.code.splitlines()
    requests = [line for line in lines if line.startswith("steer ")]
    setting_up = [line for line in lines if line and line not in requests]
    return {request.split()[1]: "\n".join(["set -e", *setting_up, request]) for request in requests}


def test_a_client_does_what_the_page_shows(steered: Steered) -> None:
    program, shown = documented(), steered.terminal

    def run(path: str) -> None:
        script = program[path].replace(SHOWN_BASE, steered.base)
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=180)
        assert (done.returncode, done.stdout) == (0, "true"), done.stderr

    steered.model.play([ANSWER])
    run("append-prompt")
    shown.wait_for("┃  Explain a.txt", without=ANSWER)
    run("submit-prompt")
    shown.wait_for("┃  Explain a.txt", ANSWER)
    run("show-toast")
    shown.wait_for("2 tests failed")
    run("open-help")
    shown.wait_for("Help", "ctrl+p")
    shown.press("Escape")
    shown.wait_for(ANSWER, without="in any context")
    run("execute-command")
    shown.wait_for("Sessions", "Search", f"● {ModelServer.TITLE}")


def test_dialogs_open(steered: Steered) -> None:
    for path, texts in {
        "open-help": ("Help", "in any context"),
        "open-sessions": ("Sessions", "Search"),
        "open-themes": ("Themes", "monokai"),
        "open-models": ("Select model", "● Main"),
    }.items():
        steered.steer(path)
        steered.terminal.wait_for(*texts)
        steered.terminal.press("Escape")
        steered.terminal.wait_for("┃  Build", without=texts[-1])


def test_a_prompt_is_written_and_cleared_and_a_session_selected(steered: Steered) -> None:
    steered.steer("append-prompt", {"text": "first "})
    steered.steer("publish", {"type": "tui.prompt.append", "properties": {"text": "second"}})
    steered.terminal.wait_for("┃  first second")
    steered.steer("clear-prompt")
    steered.terminal.wait_for("Ask anything", without="first second")
    steered.steer("select-session", {"sessionID": steered.post("/session", {"title": "Chosen by a plugin"})["id"]})
    steered.terminal.wait_for("Chosen by a plugin", without="Ask anything")
    steered.steer("execute-command", {"command": "agent_cycle"})
    steered.terminal.wait_for("┃  Plan")
    steered.steer("execute-command", {"command": "session_new"})
    steered.terminal.wait_for("Ask anything", without="Chosen by a plugin")
