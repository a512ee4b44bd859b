"""The page on a server that needs a login."""

from collections.abc import Iterator

import pytest
from page_desk import PATIENCE_MS
from playwright.sync_api import Browser, Page, expect
from running_server import RunningServer, serving_here

from app.users.tokens import TokenStore

PASSWORD = "pässword.of.three"


@pytest.fixture(scope="module")
def closed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving_here(tmp_path_factory.mktemp("closed"), OPENCODE_SERVER_PASSWORD=PASSWORD) as running:
        yield running


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context()
    context.set_default_timeout(PATIENCE_MS)
    yield context.new_page()
    context.close()


def log_in(page: Page, secret: str) -> None:
    dialog = page.get_by_role("dialog", name="Log in")
    dialog.get_by_label("Password or token").fill(secret)
    dialog.get_by_role("button", name="Log in").click()


def test_the_page_asks_for_a_login_until_it_is_right(closed_server: RunningServer, page: Page) -> None:
    page.goto(closed_server.base)
    log_in(page, "wrong")
    expect(page.get_by_role("dialog")).to_contain_text("That login is not accepted")
    log_in(page, PASSWORD)
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator("#prompt")).to_be_visible()


def test_a_token_is_a_login_and_is_kept_for_the_window(closed_server: RunningServer, page: Page) -> None:
    page.goto(closed_server.base)
    with page.expect_response(lambda answer: "/event" in answer.url and answer.ok):
        log_in(page, TokenStore(closed_server.data).create("page"))
    page.reload()
    expect(page.locator("#prompt")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)
