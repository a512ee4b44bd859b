"""The page in a real Chromium against a real server; the model behind it says what a test tells it to.

Whatever a test does, the browser's console must stay silent: no error, no refused script or style, no failed request.
"""

import subprocess
from collections.abc import Callable, Iterator
from urllib.parse import urljoin

import pytest
from model_server import ModelServer, model_server
from opencode_program import asking
from page_desk import CONTEXT, DOLLARS_A_MILLION, PATIENCE_MS, Desk
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage
from running_server import RunningServer, serving, this_checkout


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with model_server() as running:
        yield running


@pytest.fixture(scope="module")
def server(model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Commands are asked for, edits are not."""
    provider, cost = model.config()["provider"], {"input": DOLLARS_A_MILLION, "output": DOLLARS_A_MILLION}
    provider["fake"]["models"]["main"] |= {"limit": {"context": CONTEXT, "output": 100}, "cost": cost, "reasoning": True}
    permission, compaction = {"bash": "ask", "question": "allow"}, {"auto": False}
    environment = asking(model, provider=provider, permission=permission, compaction=compaction)
    environment["OPENSESSION_SHUTDOWN_SECONDS"] = "1"
    with serving(this_checkout()[0], tmp_path_factory.mktemp("page"), environment) as running:
        yield running


@pytest.fixture
def new_desk(browser: Browser, server: RunningServer, model: ModelServer) -> Iterator[Callable[..., Desk]]:
    """Opens the page in a window of its own, of a given size, at a workspace as it was committed."""
    for command in (["reset", "-q", "--hard"], ["clean", "-qfdx"]):
        subprocess.run(["git", *command], cwd=server.workspace, check=True)
    contexts: list[BrowserContext] = []
    desks: list[Desk] = []

    def open_desk(path: str = "/", width: int = 1280, height: int = 800) -> Desk:
        context = browser.new_context(viewport={"width": width, "height": height})
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        desk = Desk(context.new_page(), server, model, [])
        desks.append(desk)
        desk.page.on("console", lambda message: desk.noise.extend(complaint(message)))
        desk.page.on("pageerror", lambda error: desk.noise.append(str(error)))
        desk.page.goto(urljoin(server.base, path))
        return desk

    yield open_desk
    for context in contexts:
        context.close()
    assert [line for desk in desks for line in desk.noise] == []


def complaint(message: ConsoleMessage) -> list[str]:
    return [message.text] if message.type in ("error", "warning") else []


@pytest.fixture
def desk(new_desk: Callable[..., Desk]) -> Desk:
    return new_desk()
