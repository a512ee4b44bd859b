"""A person at OpenCode's own web app, in a real browser."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from model_server import ModelServer, Step
from playwright.sync_api import BrowserContext, ConsoleMessage, Locator, Page, Request, Response, expect
from running_server import RunningServer

PATIENCE_MS = 90_000


@dataclass
class WebApp:
    """`complaints`: requests that failed, and errors in the browser's console."""

    page: Page
    server: RunningServer
    model: ModelServer
    complaints: list[str] = field(default_factory=list)

    def listen(self) -> None:
        self.page.on("response", self._on_response)
        self.page.on("requestfailed", self._on_failure)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._on_console)

    def _on_console(self, said: ConsoleMessage) -> None:
        if said.type == "error":
            self.complaints.append(f"{said.text} {said.location['url']}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400:
            self.complaints.append(f"{response.status} {response.request.method} {response.url}")

    def _on_failure(self, request: Request) -> None:
        if request.failure != "net::ERR_ABORTED":  # as the page is left
            self.complaints.append(f"{request.failure} {request.method} {request.url}")

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


def at_home(context: BrowserContext, base: str, server: RunningServer, model: ModelServer) -> WebApp:
    """Opens the app in a window of its own."""
    context.set_default_timeout(PATIENCE_MS)
    app = WebApp(context.new_page(), server, model)
    app.listen()
    app.page.goto(base)
    return app
