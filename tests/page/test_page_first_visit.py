"""The tour that the README gives: a server without any configuration, and the page as somebody sees it for the first time."""

import re
from collections.abc import Callable, Iterator

import pytest
from model_server import ModelServer
from page_desk import Desk
from playwright.sync_api import expect
from running_server import ROOT, RunningServer, serving_here

TOUR = re.findall(r"^\d\. Prompt `([^`]+)`", (ROOT / "README.md").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with serving_here(tmp_path_factory.mktemp("first")) as running:
        yield running


@pytest.fixture(scope="module")
def model() -> ModelServer:
    """None: the server answers by rule."""
    return ModelServer(0)


def test_the_examples_of_an_empty_page_are_put_into_the_prompt(new_desk: Callable[..., Desk]) -> None:
    desk = new_desk(width=390, height=700)
    expect(desk.page.get_by_role("heading", name="What would you like to do?")).to_be_in_viewport()
    expect(desk.page.get_by_text(str(desk.server.workspace))).to_be_visible()
    examples = desk.page.locator(".example")
    assert {"help", "read /etc/hosts"} <= set(examples.all_inner_texts())
    desk.button("help").click()
    expect(desk.prompt).to_have_value("help")
    desk.button("Send").click()
    expect(desk.answer).to_contain_text("no language model, only a few rules")
    for example in examples.all_inner_texts():
        expect(desk.answer).to_contain_text(example.split(" ")[0])


def test_the_readme_s_tour_goes_as_it_says(new_desk: Callable[..., Desk]) -> None:
    desk = new_desk()
    assert TOUR == ["help", "write notes.md: # Notes", "read /etc/hosts"]
    desk.say(TOUR[0])
    expect(desk.button("Queue")).to_be_visible()
    desk.say(TOUR[1])  # nobody needs to wait for the end of an answer
    expect(desk.answer).to_contain_text("write succeeded")
    expect(desk.messages.locator(".tool .file header")).to_have_text("notes.md+1 −0")
    expect(desk.messages.locator(".tool .row.added")).to_contain_text("# Notes")
    assert desk.file("notes.md") == "# Notes"
    desk.say(TOUR[2])
    expect(desk.dialog).to_contain_text("Access files outside the project?")
    desk.button("Allow once").click()
    expect(desk.answer).to_contain_text("read succeeded")

    second = desk.messages.locator(".message.user").nth(1)
    second.hover()
    second.get_by_role("button", name="Revert").click()
    expect(desk.dialog.locator(".file header")).to_have_text(["notes.md+0 −1"])
    desk.dialog.get_by_role("button", name="Revert").click()
    expect(desk.page.get_by_text("2 prompts and all that followed reverted.")).to_be_visible()
    assert desk.file("notes.md") is None
    desk.button("Undo revert").click()
    expect(desk.answer).to_contain_text("read succeeded")
    assert desk.file("notes.md") == "# Notes"

    desk.button("New session").click()
    (desk.server.workspace / "notes.md").write_text("# Mine\n")
    desk.say(TOUR[1])
    expect(desk.answer).to_contain_text("write succeeded")
    assert desk.file("notes.md") == "# Notes", "it can be made again"
