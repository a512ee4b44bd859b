"""OpenChamber at its pinned commit, driven in Chromium against this server and against OpenCode itself in the same way: none of
the requests of its page and its server may be refused.

OPENSESSION_LONG=1 runs it, where OPENCHAMBER_SOURCE names a checkout; building that takes some minutes.
"""

import shlex
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from doc_snippets import SHOWN_BASE, blocks
from long_form import LONG
from model_server import model_server
from openchamber import ChamberDesk, OpenChamber, build, running
from opencode_program import OFFLINE, asking, installed
from playwright.sync_api import Browser, expect
from recording_proxy import recording_proxy
from running_server import ROOT, serving, this_checkout

pytestmark = pytest.mark.skipif(not LONG, reason="OpenChamber's build takes minutes of CPU: OPENSESSION_LONG=1")

PATIENCE_MS = 60_000

expect.set_options(timeout=PATIENCE_MS)


@pytest.fixture(scope="module")
def openchamber(tmp_path_factory: pytest.TempPathFactory) -> OpenChamber:
    return build(tmp_path_factory.mktemp("openchamber"))


def recipe(program: str, home: Path) -> dict[str, str]:
    """The variables that docs/frontends.md starts `opensession` or `openchamber` with."""
    [block] = [block for block in blocks((ROOT / "docs" / "frontends.md").read_text()) if block.kind == "sh openchamber"]
    [words] = [words for line in block.code.splitlines() if program in (words := shlex.split(line))]
    variables = dict(word.split("=", 1) for word in words[: words.index(program)])
    return {name: str(home) if value == "~" else value for name, value in variables.items()}


def command_of(server: str, home: Path, node_modules: Path) -> tuple[list[str], dict[str, str]]:
    if server == "opensession":
        return this_checkout()[0], recipe("opensession", home)
    return [str(installed(node_modules)), "serve", "--port", "PORT", "--hostname", "127.0.0.1"], dict(OFFLINE)


@pytest.fixture(scope="module", params=["opencode", "opensession"])
def desk(
    request: pytest.FixtureRequest,
    openchamber: OpenChamber,
    browser: Browser,
    node_modules: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ChamberDesk]:
    """At a project that was just added. Commands are asked for, edits are not."""
    directory = tmp_path_factory.mktemp(request.param)
    home = directory / "home"
    with ExitStack() as stack:
        model = stack.enter_context(model_server())
        own = asking(model, permission={"bash": "ask", "question": "allow"})
        command, environment = command_of(request.param, home, node_modules)
        server = stack.enter_context(serving(command, directory, {**own, **environment}))
        proxy = stack.enter_context(recording_proxy(server.port))
        variables = {name: proxy.base if value == SHOWN_BASE else value for name, value in recipe("openchamber", home).items()}
        base = stack.enter_context(running(openchamber, home, variables))
        context = browser.new_context(viewport={"width": 1400, "height": 900}, service_workers="block")
        context.set_default_timeout(PATIENCE_MS)
        stack.callback(context.close)
        desk = ChamberDesk(context.new_page(), model, server.workspace, proxy, request.param == "opensession")
        desk.page.goto(base)
        desk.add_project(server.workspace)
        yield desk


def test_an_answer_streams_and_its_session_is_listed(desk: ChamberDesk, gate: threading.Event) -> None:
    desk.begin_session("Streamed")
    desk.say("Hello there", ["First half", gate, " and second half."])
    desk.sees("First half")
    gate.set()
    desk.sees("First half and second half.")
    expect(desk.button("Streamed").first).to_be_visible()
    desk.begin_session("Another")
    desk.ask("Something else", ["Other."])
    desk.open_session("Streamed")
    desk.sees("First half and second half.")


def test_a_page_that_is_loaded_again_in_the_middle_of_an_answer_goes_on(desk: ChamberDesk, gate: threading.Event) -> None:
    desk.begin_session("Reloaded")
    desk.say("Slowly", ["Part one.", gate, " Part two."])
    desk.sees("Part one.")
    desk.page.reload()
    expect(desk.button("Stop generating")).to_be_visible()
    if desk.is_ours:  # OpenCode tells of a text by events alone until it is whole
        desk.sees("Part one.")
    gate.set()
    desk.sees("Part one. Part two.")
    desk.wait_until_idle()


def test_an_answer_that_is_stopped_is_shown_as_stopped(desk: ChamberDesk, gate: threading.Event) -> None:
    desk.begin_session("Stopped")
    desk.say("For long", ["It begins.", gate, " It ends."])
    desk.sees("It begins.")
    desk.button("Stop generating").click()
    desk.sees("The running turn was stopped before OpenCode could send the next message.")
    desk.wait_until_idle()


@pytest.mark.parametrize(("button", "is_run"), [("Allow Once", True), ("Deny", False)])
def test_a_command_is_asked_for_and_runs_only_when_it_is_allowed(desk: ChamberDesk, button: str, is_run: bool) -> None:
    desk.begin_session("Permission" if is_run else "Denied")
    made = desk.workspace / f"{is_run}.txt"
    desk.say("Run it", [("bash", {"command": f"echo 1 > {made.name}", "description": "Makes a file"})], ["It ran."])
    expect(desk.conversation.get_by_text("Permission Required")).to_be_visible()
    assert not made.exists()
    desk.button(button).click()
    if is_run:
        desk.sees("It ran.")
    desk.wait_until_idle()
    assert made.exists() is is_run


def test_a_question_is_answered(desk: ChamberDesk) -> None:
    desk.begin_session("Question")
    options = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}]
    asked = {"questions": [{"question": "Which colour?", "header": "Colour", "options": options}]}
    desk.say("Ask me", [("question", asked)], ["You chose well."])
    desk.sees("Which colour?")
    desk.conversation.get_by_role("button", name="Blue").click()
    desk.button("Submit").click()
    desk.sees("You chose well.")
    assert "Blue" in desk.model.requests[-1]["messages"][-1]["content"]


def test_edits_are_shown_with_their_lines_and_as_changes(desk: ChamberDesk) -> None:
    desk.begin_session("Edits")
    file = str(desk.workspace / "a.txt")
    edit = ("edit", {"filePath": file, "oldString": "hello", "newString": "goodbye"})
    desk.ask("Edit it", [("read", {"filePath": file})], [edit], ["Edited."])
    expect(desk.conversation.get_by_text("+1").first).to_be_visible()
    desk.page.reload()  # it looks at the files again when it is loaded, and after tools that it has seen running
    desk.button("Changes").click()
    expect(desk.button("Modified file a.txt +1 -1")).to_be_visible()


def test_a_session_is_forked_before_a_message(desk: ChamberDesk) -> None:
    desk.begin_session("Forked")
    for text, answer in (("First", "Answer one."), ("Second", "Answer two.")):
        desk.ask(text, [answer])
    desk.act_on_message("Second", "Fork from this message")
    expect(desk.button("Forked (fork #1)").first).to_be_visible()
    desk.sees("Answer one.")
    desk.sees_not("Answer two.")


def test_messages_and_files_are_taken_back_and_restored_one_by_one(desk: ChamberDesk) -> None:
    desk.begin_session("Reverted")
    for name in ("one", "two", "three"):
        written = {"filePath": str(desk.workspace / f"{name}.txt"), "content": f"{name}\n"}
        desk.ask(f"Write {name}", [("write", written)], [f"Wrote {name}."])
    desk.act_on_message("Write one", "Revert to this message")
    desk.sees_not("Wrote one.")
    desk.sees_files()
    desk.button("Reverted messages 3").click()
    desk.button("Restore").nth(1).click()
    expect(desk.button("Reverted messages 1")).to_be_visible()
    desk.sees_files("one.txt", "two.txt")
    desk.sees("Wrote two.")
    desk.sees_not("Wrote three.")
    desk.say("/redo")
    desk.sees("Wrote three.")
    desk.sees_files("one.txt", "two.txt", "three.txt")
    desk.say("/undo")
    desk.sees_not("Wrote three.")
    desk.sees_files("one.txt", "two.txt")


def test_a_session_is_compacted(desk: ChamberDesk) -> None:
    desk.begin_session("Compacted")
    desk.ask("Say something", ["Something."])
    desk.ask("/compact", ["A summary of it all."])


def test_the_terminal_works_beside_it(desk: ChamberDesk) -> None:
    """It is OpenChamber's own, in the same directory."""
    made = desk.workspace / "typed.txt"
    with desk.page.expect_websocket(lambda socket: "/api/terminal/" in socket.url):
        desk.button("Terminal").click()
    desk.until(made.exists, lambda: desk.page.keyboard.type(f"touch {made.name}\n"))


def test_no_request_was_refused(desk: ChamberDesk) -> None:
    """Those of all tests above."""
    made = {urlsplit(exchange.path).path.rpartition("/")[2] for exchange in desk.behind.exchanges if exchange.method == "POST"}
    assert made >= {"session", "prompt_async", "abort", "reply", "fork", "revert", "unrevert", "summarize"}
    assert desk.behind.refused() == []
