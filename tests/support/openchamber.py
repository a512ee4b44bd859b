"""OpenChamber, a frontend with a server of its own, built from its source; and a person at its page."""

import os
import re
import subprocess
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from model_server import ModelServer, Step
from playwright.sync_api import Locator, Page, expect
from recording_proxy import RecordingProxy
from running_server import clean_environment, free_port, needed, start_serving, stop, wait_until_it_answers

COMMIT = "4c8acf3c77777b80dee37a5194527bc0ef44dab6"
"""Version 1.19.0."""
SOURCE = "OPENCHAMBER_SOURCE"
"""Names a checkout of github.com/openchamber/openchamber that has the commit."""
BUN = "bun@1.4.5"
BUILD_SECONDS = 1800
PATIENCE_SECONDS = 60


@dataclass(frozen=True)
class OpenChamber:
    web: Path
    bun: Path


def build(directory: Path) -> OpenChamber:
    """From the checkout that the environment names, in a new directory, which takes some minutes. One that is built already is
    used as it stands."""
    named = os.environ.get(SOURCE)
    if named is None:
        pytest.skip(f"{SOURCE} does not name a checkout of OpenChamber")
    checkout = Path(named)
    _run([needed("npm"), "install", "--silent", "--prefix", str(directory), BUN], directory)
    bun = directory / "node_modules" / ".bin" / "bun"
    source = checkout if _is_built(checkout) else _build(checkout, directory / "source", bun)
    return OpenChamber(source / "packages" / "web", bun)


def _is_built(checkout: Path) -> bool:
    page = checkout / "packages" / "web" / "dist" / "index.html"
    return page.exists() and _run(["git", "rev-parse", "HEAD"], checkout).strip() == COMMIT


def _build(checkout: Path, source: Path, bun: Path) -> Path:
    archive = source.with_suffix(".tar")
    _run(["git", "archive", "--output", str(archive), COMMIT], checkout)
    with tarfile.open(archive) as files:
        files.extractall(source, filter="data")
    package = source / "packages" / "ui" / "package.json"  # it names a beta that some registries miss: this is its predecessor
    package.write_text(package.read_text().replace('"@pierre/diffs": "1.3.0-beta.6"', '"@pierre/diffs": "1.3.0-beta.5"'))
    _run([str(bun), "install", "--ignore-scripts"], source)
    _run([str(bun), "run", "build"], source / "packages" / "web")
    return source


def _run(command: list[str], directory: Path) -> str:
    result = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    return result.stdout


@contextmanager
def running(program: OpenChamber, home: Path, variables: dict[str, str]) -> Iterator[str]:
    """Its address. `variables` say which server it is for."""
    port, log = free_port(), home / "openchamber.log"
    base = f"http://127.0.0.1:{port}"
    environment = clean_environment(home, OPENCHAMBER_HOST="127.0.0.1", NODE_ENV="production", **variables)
    process = start_serving(program.web, environment, log, port, [str(program.bun), "server/index.js", "--port", "PORT"])
    try:
        wait_until_it_answers(process, base, log)
        yield base
    finally:
        stop(process)


@dataclass
class ChamberDesk:
    """A person at OpenChamber's page: what they see and do. `behind`: before the server that OpenChamber asks,
    which is this one or OpenCode."""

    page: Page
    model: ModelServer
    workspace: Path
    behind: RecordingProxy
    is_ours: bool

    @property
    def conversation(self) -> Locator:
        return self.page.locator("main")

    @property
    def prompt(self) -> Locator:
        return self.conversation.get_by_role("textbox").last

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("button", name=name, exact=isinstance(name, str))

    def sees(self, text: str) -> None:
        expect(self.conversation.get_by_text(text, exact=True).last).to_be_visible()

    def sees_not(self, text: str) -> None:
        expect(self.conversation.get_by_text(text, exact=True)).to_have_count(0)

    def add_project(self, directory: Path) -> None:
        """In a dialog, which opens by itself for who comes for the first time if the home directory is no project by then."""
        dialog = self.page.get_by_role("dialog", name="Add project directory")
        expect(self.page.get_by_label("Add project", exact=True)).to_be_attached()
        self.until(dialog.is_visible, lambda: self.page.get_by_label("Add project", exact=True).dispatch_event("click"))
        dialog.get_by_role("textbox").fill(f"{directory}/")
        self.page.keyboard.press("Control+Enter")
        expect(dialog).to_be_hidden()
        self.button("New draft session").last.dispatch_event("click")  # in case the page went on to the home directory meanwhile
        expect(self.page.get_by_role("heading", name=re.compile(directory.name))).to_be_visible()

    def begin_session(self, title: str) -> None:
        """The model will name it so."""
        self.model.title = [title]
        self.button("New session").first.click()
        expect(self.page.get_by_role("heading", name=re.compile("What are we working on"))).to_be_visible()

    def open_session(self, title: str) -> None:
        self.button(title).first.click()

    def say(self, text: str, *turns: list[Step]) -> None:
        """The prompt, or a command of the page, is sent, and the model answers with these turns."""
        self.model.play(*turns)
        self.prompt.click()
        self.prompt.fill(text)
        self.button("Send message").click()

    def ask(self, text: str, *turns: list[Step]) -> None:
        """The last turn is one text, which is shown in the end."""
        self.say(text, *turns)
        self.sees(str(turns[-1][0]))
        self.wait_until_idle()

    def act_on_message(self, text: str, action: str) -> None:
        """By a button that shows while the pointer is on the message."""
        said = self.page.get_by_text(text, exact=True)
        message = self.conversation.locator("div").filter(has=said).filter(has=self.button(action)).last
        message.get_by_text(text, exact=True).hover()
        message.get_by_role("button", name=action).click()

    def wait_until_idle(self) -> None:
        expect(self.button("Stop generating")).to_be_hidden()

    def sees_files(self, *names: str) -> None:
        """Of those that the model writes, one, two and three, these are there."""
        written = {name: self.workspace / name for name in ("one.txt", "two.txt", "three.txt")}
        self.until(lambda: {name for name, path in written.items() if path.exists()} == set(names))

    def until(self, holds: Callable[[], bool], again: Callable[[], None] = lambda: None) -> None:
        """Waits for it, doing something again and again."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not holds():
            assert time.monotonic() < deadline
            again()
            self.page.wait_for_timeout(500)
