"""OpenCode's own web app, as the program of 1.18.33 serves it, at work with this server: no request fails, the console is silent.

The short form is the recipe of docs/frontends.md and one prompt; OPENSESSION_LONG=1 does all that the app does with sessions.
"""

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import running_server
from doc_snippets import blocks
from long_form import LONG
from model_server import ModelServer, Refusal, Step
from opencode_program import OFFLINE, asking, installed
from playwright.sync_api import Browser, Locator, Page, expect
from running_server import ROOT, RunningServer, clean_environment, free_port, needed, serving, this_checkout

long_form = pytest.mark.skipif(not LONG, reason="a part of the long form: OPENSESSION_LONG=1")

PATIENCE_MS = 90_000
expect.set_options(timeout=PATIENCE_MS)


@dataclass
class WebApp:
    """`complaints`: requests that failed, and errors in the browser's console."""

    page: Page
    server: RunningServer
    model: ModelServer
    complaints: list[str] = field(default_factory=list)

    def listen(self) -> None:
        def note(kind: str, complaint: Callable[[Any], str], is_wrong: Callable[[Any], bool] = lambda _: True) -> None:
            self.page.on(kind, lambda said: self.complaints.append(complaint(said)) if is_wrong(said) else None)

        note("pageerror", str)
        note("console", lambda said: f"{said.text} {said.location['url']}", lambda said: said.type == "error")
        note("response", lambda said: f"{said.status} {said.request.method} {said.url}", lambda said: said.status >= 400)
        left = "net::ERR_ABORTED"  # as the page is left
        note("requestfailed", lambda said: f"{said.failure} {said.method} {said.url}", lambda said: said.failure != left)

    @property
    def prompt(self) -> Locator:
        return self.page.get_by_role("textbox", name="Prompt")

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog").last

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("button", name=name)

    def text(self, text: str) -> Locator:
        return self.page.get_by_text(text).first

    def shows(self, text: str) -> None:
        expect(self.text(text)).to_be_visible()

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_MS / 1000
        while not condition():
            assert time.monotonic() < deadline
            self.page.wait_for_timeout(100)

    def hides(self, text: str) -> None:
        expect(self.page.get_by_text(text)).to_have_count(0)

    def sessions(self) -> Locator:
        """Those of the project, at home, where the app shows what there was when it was loaded."""
        self.button("Home").click()
        self.page.reload()
        return self.page.get_by_role("region", name="Recent sessions")

    def add_project(self) -> None:
        """The server's directory is found among those that it may be looked for in."""
        self.button("Add project").last.click()
        self.dialog.get_by_role("button", name=self.server.workspace.name).click()
        expect(self.dialog).to_be_hidden()

    def new_session(self) -> None:
        self.button("New session").last.click()
        expect(self.button("Main")).to_be_visible()

    def say(self, text: str, *turns: list[Step]) -> None:
        """The prompt is sent, and the model answers with these turns."""
        self.model.play(*turns)
        self.type(text)
        self.prompt.press("Enter")
        expect(self.prompt).to_have_text("")

    def ask(self, text: str, *turns: list[Step]) -> None:
        """The last turn is one text, which is shown in the end."""
        self.say(text, *turns)
        self.shows(str(turns[-1][0]))
        self.wait_until_idle()

    def type(self, text: str) -> None:
        self.prompt.fill("")
        self.prompt.press_sequentially(text)

    def command(self, name: str) -> None:
        """One of those that the app offers behind a `/`."""
        self.type(name)
        expect(self.page.locator("button", has_text=re.compile(f"^{name}"))).to_be_visible()
        self.prompt.press("Enter")

    def choose(self, what: str) -> None:
        """In the menu of the session."""
        self.button("More options").first.click()
        self.page.get_by_role("menuitem", name=what).click()

    def forget_deleted(self) -> None:
        """The app looks a session up once more that it has deleted; OpenCode answers 404 too."""
        about_a_session = re.compile(r"\b404\b.*/session/ses_\w+$")
        self.complaints = [complaint for complaint in self.complaints if not about_a_session.search(complaint)]

    def wait_until_idle(self) -> None:
        expect(self.button("Send")).to_be_visible()


def shown(kind: str) -> str:
    """What docs/frontends.md has people do."""
    return next(block.code for block in blocks((ROOT / "docs" / "frontends.md").read_text()) if block.kind == kind)


@pytest.fixture(scope="module")
def program(node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Serves the app's files."""
    _, *arguments = shown("sh app").replace("4097", "PORT").split()
    with serving([str(installed(node_modules)), *arguments], tmp_path_factory.mktemp("program"), OFFLINE) as running:
        yield running


@pytest.fixture(scope="module")
def server(model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Its directory stands in the home directory, as people have it."""
    directory = tmp_path_factory.mktemp("server")
    own = {"HOME": str(directory), "OPENSESSION_SHUTDOWN_SECONDS": "1"}
    with serving(this_checkout()[0], directory, asking(model, permission={"bash": "ask"}) | own) as running:
        yield running


@pytest.fixture(scope="module")
def proxy(program: RunningServer, server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
    directory, port = tmp_path_factory.mktemp("proxy"), free_port()
    config, log = directory / "Caddyfile", directory / "caddy.log"
    site = shown("caddy app").replace("4098", str(port)).replace("4097", str(program.port)).replace("4096", str(server.port))
    config.write_text(f"{{\n\tadmin off\n\tgrace_period 1s\n}}\n{site}")
    command = [needed("caddy"), "run", "--adapter", "caddyfile", "--config", str(config)]
    process = running_server.start_serving(directory, clean_environment(directory), log, port, command)
    try:
        running_server.wait_until_it_answers(process, f"http://127.0.0.1:{port}", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        running_server.stop(process)


@pytest.fixture
def app(browser: Browser, proxy: str, server: RunningServer, model: ModelServer) -> Iterator[WebApp]:
    """At the prompt of a new session."""
    with browser.new_context(viewport={"width": 1400, "height": 900}) as context:
        context.set_default_timeout(PATIENCE_MS)
        app = WebApp(context.new_page(), server, model)
        app.listen()
        app.page.goto(proxy)
        app.add_project()
        app.new_session()
        yield app
        assert app.complaints == []


def test_a_prompt_streams_its_answer_and_shows_what_it_changed(app: WebApp, server: RunningServer, gate: threading.Event) -> None:
    write = ("write", {"filePath": str(server.workspace / "note.txt"), "content": "one\ntwo\n"})
    app.say("Write a note", ["I begin.", gate, write], ["It is written."])
    app.shows("I begin.")
    gate.set()
    app.shows("It is written.")
    app.shows("1 Changed file")
    expect(app.button(re.compile(r"note\.txt \+2 -0"))).to_be_visible()
    app.button("Toggle review").click()
    expect(app.button("note.txt A")).to_be_visible()
    expect(app.page.get_by_text("No file changes yet")).to_have_count(0)


@long_form
def test_permissions_and_questions_are_answered(app: WebApp) -> None:
    def run(command: str) -> tuple[str, dict[str, str]]:
        return "bash", {"command": command, "description": "Runs it"}

    app.say("Once", [run("echo hi")], ["It ran."])
    app.button("Allow once").click()
    app.shows("It ran.")
    app.say("Never", [run("date")], ["It is never asked for this."])
    app.button("Deny").click()
    app.wait_until_idle()
    app.say("Always", [run("ls a.txt")], [run("ls .")], ["It ran twice."])
    app.button("Allow always").click()
    app.shows("It ran twice.")
    options = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]
    app.say("Ask", [("question", {"questions": [{"header": "Colour", "question": "Which?", "options": options}]})], ["I see."])
    app.page.get_by_role("radio", name="Blue cold").click()
    app.button("Submit").click()
    app.shows("I see.")
    app.shows("1 answered")


@long_form
def test_undo_redo_fork_and_compact(app: WebApp, server: RunningServer) -> None:
    note = server.workspace / "undone.txt"
    app.ask("First", ["First answer."])
    app.ask("Second", [("write", {"filePath": str(note), "content": "x\n"})], ["Second answer."])
    app.page.reload()  # the app counts a prompt of its own twice until then
    app.shows("Second answer.")
    app.command("/undo")
    app.hides("Second answer.")
    assert not note.exists()
    app.command("/redo")
    app.shows("Second answer.")
    assert note.read_text() == "x\n"
    app.command("/fork")
    app.dialog.get_by_text("Second").click()
    expect(app.page.get_by_role("heading", name="A scripted title (fork #1)")).to_be_visible()
    app.hides("Second answer.")
    app.ask("In the fork", ["Third answer."])
    app.model.play(["A summary of it all."])
    app.command("/compact")
    app.shows("A summary of it all.")
    app.wait_until_idle()


@long_form
def test_a_page_that_is_loaded_in_mid_turn_goes_on_with_it(app: WebApp, gate: threading.Event) -> None:
    app.say("Slowly", ["It begins,", gate, " and it ends."])
    app.shows("It begins,")
    app.page.reload()
    app.shows("It begins,")
    gate.set()
    app.shows("and it ends.")
    app.wait_until_idle()


@long_form
def test_a_turn_is_stopped_and_another_fails(app: WebApp, gate: threading.Event) -> None:
    app.say("Stop", ["It begins.", gate])
    app.shows("It begins.")
    app.button("Stop").click()
    app.shows("Interrupted")
    app.wait_until_idle()
    app.say("Fail", [Refusal(400)])
    expect(app.page.locator("main").get_by_text("Bad Request")).to_be_visible()
    app.wait_until_idle()


@long_form
def test_subagents_shell_lines_and_files(app: WebApp) -> None:
    task = ("task", {"description": "Look around", "prompt": "Look", "subagent_type": "general"})
    app.ask("Delegate", [task], ["The child's answer."], ["The task is done."])
    app.text("Look around").click()
    app.shows("The child's answer.")
    app.page.go_back()
    app.shows("The task is done.")
    app.type("!echo from the shell")
    app.prompt.press("Enter")
    app.shows("from the shell")
    app.wait_until_idle()
    app.page.keyboard.press("Control+p")
    app.dialog.get_by_role("textbox").press_sequentially("a.tx")
    app.dialog.get_by_role("option", name="a.txt").click()
    app.shows("world")


@long_form
def test_a_terminal(app: WebApp) -> None:
    app.ask("Hi", ["Hello."])
    printed: list[str] = []
    app.page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: printed.append(str(frame))))
    app.page.keyboard.press("Control+Backquote")
    app.until(lambda: any(frame.strip().endswith(("$", "#")) for frame in printed))
    app.page.keyboard.type("echo typed-$((40+2))\n")
    app.until(lambda: "typed-42" in "".join(printed))


@long_form
def test_sessions_are_renamed_archived_and_deleted(app: WebApp, server: RunningServer) -> None:
    app.ask("Hi", ["Hello."])
    app.choose("Rename")
    app.page.keyboard.press("Control+a")
    app.page.keyboard.type("A name of mine\n")
    expect(app.page.get_by_role("heading", name="A name of mine")).to_be_visible()
    app.sessions().get_by_text("A name of mine").click()
    app.choose("Archive")
    expect(app.page.get_by_role("heading", name="A name of mine")).to_have_count(0)
    expect(app.sessions().get_by_text("A name of mine")).to_have_count(0)
    app.new_session()
    app.ask("Hi again", ["Hello again."])
    app.choose("Delete")
    app.dialog.get_by_role("button", name="Delete").click()
    app.hides("Hello again.")
    app.forget_deleted()
