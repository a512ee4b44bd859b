"""A person at the page, in a real browser."""

import re
from dataclasses import dataclass

from model_server import ModelServer, Step
from playwright.sync_api import Locator, Page, expect
from running_server import RunningServer

PATIENCE_MS = 45_000
CONTEXT, DOLLARS_A_MILLION = 1000, 100
"""The model's window in tokens, and what it costs."""

expect.set_options(timeout=PATIENCE_MS)


@dataclass
class Desk:
    """A person at the page: what they see and do. `noise` is what the console said that it should not."""

    page: Page
    server: RunningServer
    model: ModelServer
    noise: list[str]

    @property
    def prompt(self) -> Locator:
        return self.page.get_by_role("textbox", name="Prompt")

    @property
    def answer(self) -> Locator:
        """The newest message of the model."""
        return self.page.locator(".message.assistant").last

    @property
    def user_message(self) -> Locator:
        return self.page.locator(".message.user").last

    @property
    def messages(self) -> Locator:
        return self.page.get_by_role("log", name="Messages")

    @property
    def dialog(self) -> Locator:
        return self.page.get_by_role("dialog")

    def button(self, name: str | re.Pattern[str]) -> Locator:
        return self.page.get_by_role("button", name=name, exact=isinstance(name, str))

    def say(self, text: str, *turns: list[Step]) -> None:
        """The prompt is sent, and the model answers with these turns."""
        self.model.play(*turns)
        self.prompt.fill(text)
        self.prompt.press("Enter")
        expect(self.prompt).to_have_value("")

    def ask(self, text: str, *turns: list[Step]) -> None:
        """The last turn is one text, and is shown in the end."""
        self.say(text, *turns)
        expect(self.answer).to_contain_text(str(turns[-1][0]))
        self.wait_until_idle()

    def wait_until_idle(self) -> None:
        expect(self.button("Stop")).to_be_hidden()

    def file(self, name: str) -> str | None:
        path = self.server.workspace / name
        return path.read_text() if path.exists() else None
