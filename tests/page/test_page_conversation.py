"""A conversation in the page: text that streams, reasoning, tools, permissions, questions, stopping, waiting for a retry."""

import os
import re
import sys
import threading
from pathlib import Path

import httpx2
import pytest
from git_files import put_file
from model_server import Reasoning, Refusal, Tokens
from page_desk import CONTEXT, Desk
from playwright.sync_api import expect

LANGUAGE_SERVER = Path(__file__).parents[1] / "support" / "fake_language_server.py"
BASH = ("bash", {"command": "echo first; cat gate.fifo; echo second", "description": "Says two words"})
ECHO = ("bash", {"command": "echo was-run > made.txt", "description": "Makes a file"})


def test_an_answer_appears_and_grows_while_it_streams(desk: Desk, gate: threading.Event) -> None:
    desk.say("hello there", ["The **first** half ", gate, "and the second.\n\n- one\n- two"])
    expect(desk.user_message).to_contain_text("hello there")
    expect(desk.answer.locator("strong")).to_have_text("first")
    expect(desk.answer).to_have_attribute("aria-busy", "true")
    expect(desk.button("Stop")).to_be_visible()
    expect(desk.page.get_by_text("Working…")).to_be_visible()
    gate.set()
    expect(desk.answer).to_contain_text("The first half and the second.")
    expect(desk.answer.get_by_role("listitem")).to_have_text(["one", "two"])
    expect(desk.answer).to_have_attribute("aria-busy", "false")
    desk.wait_until_idle()
    expect(desk.page.get_by_role("heading", level=1)).to_have_text("A scripted title")


def test_lists_tables_and_code_are_shown_as_they_are_meant(desk: Desk, gate: threading.Event) -> None:
    desk.say("list", ["1. one\n   - deep\n   - deep too\n2. two\n   * near\n\n3. three\n\n   more of three\n\n- another"])
    expect(desk.answer.locator("ol > li")).to_have_text([re.compile(word) for word in ("^one", "^two", "^three")])
    expect(desk.answer.locator("ol > li > ul > li")).to_have_text(["deep", "deep too", "near"])
    expect(desk.answer.locator("ol > li:last-child p")).to_have_text(["three", "more of three"])
    expect(desk.answer.locator(".section > ul > li")).to_have_text(["another"])
    desk.wait_until_idle()
    desk.say("table", ["| name | size | left |\n|:-:|--:|:--|\n| a.txt | 12 | x |"])
    cells = desk.answer.locator("td")
    expect(cells).to_have_text(["a.txt", "12", "x"])
    aligned = cells.evaluate_all("cells => cells.map(cell => getComputedStyle(cell).textAlign)")
    assert aligned == ["center", "right", "start"]
    desk.wait_until_idle()
    desk.say("code", ["```python\ndef first():\n", gate, "    return 1\n```\n\n- ```python\n  import os\n  ```\n\n~~gone~~ end."])
    code = desk.answer.locator(".section > .code code")
    expect(code.locator(".hljs-keyword")).to_have_text(["def"])
    gate.set()
    expect(code.locator(".hljs-keyword")).to_have_text(["def", "return"])
    expect(code).to_have_text("def first():\n    return 1\n")
    expect(desk.answer.locator("li .code .hljs-keyword")).to_have_text("import")
    expect(desk.answer.locator("s")).to_have_text("gone")


def test_reasoning_is_folded_and_unfolds_while_it_streams(desk: Desk, gate: threading.Event) -> None:
    desk.say("think", [Reasoning("Let me see. "), gate, Reasoning("I see."), "Done thinking."])
    expect(desk.answer.get_by_text("Thinking…")).to_be_visible()
    expect(desk.answer.get_by_text("Let me see.")).to_be_hidden()
    desk.answer.get_by_text("Thinking…").click()
    expect(desk.answer.get_by_text("Let me see.")).to_be_visible()
    gate.set()
    expect(desk.answer.get_by_text("Let me see. I see.")).to_be_visible()
    expect(desk.answer.get_by_text("Thought for")).to_be_visible()
    expect(desk.answer).to_contain_text("Done thinking.")


def test_a_command_is_shown_with_the_output_that_it_has_so_far(desk: Desk) -> None:
    fifo = desk.server.workspace / "gate.fifo"
    os.mkfifo(fifo)
    desk.say("say two words", ["I will.", BASH], ["Both were said."])
    expect(desk.dialog).to_contain_text("Run this command?")
    expect(desk.dialog.locator("pre.command")).to_have_text(BASH[1]["command"])
    desk.button("Allow once").click()
    output = desk.messages.get_by_label("Output")
    expect(output).to_have_text("first\n")
    with fifo.open("w") as gate:
        gate.write("between\n")
    expect(output).to_have_text("first\nbetween\nsecond\n")
    expect(desk.answer).to_contain_text("Both were said.")
    fifo.unlink()


def test_errors_of_language_servers_and_formatters_are_shown_under_a_call(desk: Desk) -> None:
    workspace = desk.server.workspace
    (workspace / "ruff.toml").write_text("")
    (workspace / ".venv" / "bin").mkdir(parents=True)
    (workspace / "fake.py").write_text(LANGUAGE_SERVER.read_text())
    programs = {"pyright-langserver": f"exec {sys.executable} fake.py plain", "ruff": "echo cannot parse it; exit 2"}
    for name, line in programs.items():
        (workspace / ".venv" / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (workspace / ".venv" / "bin" / name).chmod(0o755)
    write = ("write", {"filePath": "a.py", "content": "fine\nwrong <b>\n"})
    edit = ("edit", {"filePath": "a.py", "oldString": "wrong", "newString": "right"})
    desk.ask("write it", [write], [edit], ["It is mended."])
    written, edited = (desk.messages.locator(".tool").nth(number) for number in (0, 1))
    formatter = re.compile(r"^Not formatted by ruff\s*exit code 2: cannot parse it$")
    expect(written.get_by_role("listitem")).to_have_text([re.compile(r"^a\.py:2:1\s*this is wrong: wrong <b>$"), formatter])
    expect(written.locator(".note")).to_contain_text("1 error")
    expect(written.get_by_label("Output")).to_have_text("Wrote file successfully.")
    expect(edited.get_by_role("listitem")).to_have_text([formatter])
    expect(edited.locator(".note")).not_to_contain_text("error")


def test_a_permission_shows_the_call_that_asks_for_it_and_rejected_tells_the_model_why_and_runs_nothing(desk: Desk) -> None:
    desk.say("make a file", [ECHO], ["I will ask first."])
    expect(desk.dialog).to_contain_text("Always would allow echo *")
    desk.page.get_by_label("If you reject it").fill("ask me first")
    desk.button("Reject (Esc)").click()
    expect(desk.messages.locator(".tool")).to_contain_text("ask me first")
    expect(desk.answer).to_contain_text("I will ask first.")
    assert desk.file("made.txt") is None
    desk.wait_until_idle()
    desk.say("read it", [("read", {"filePath": "/etc/hosts"})], ["It is read."])
    expect(desk.dialog).to_contain_text("Access files outside the project?")
    expect(desk.dialog.locator(".call")).to_have_text("read /etc/hosts")
    expect(desk.dialog.locator(".patterns li")).to_have_text(["/etc/*"])
    expect(desk.page.get_by_text("Waiting for your answer")).to_be_visible()
    desk.button("Allow once").click()
    expect(desk.answer).to_contain_text("It is read.")
    desk.wait_until_idle()
    command = "mkdir /nowhere/made"
    desk.say("make it", [("bash", {"command": command, "description": "Makes it"})], ["It was not made."])
    expect(desk.dialog).to_contain_text("Access files outside the project?")
    expect(desk.dialog.locator("pre.command")).to_have_text(command)
    desk.button("Reject (Esc)").click()
    desk.wait_until_idle()


def test_a_permission_can_wait_and_another_window_may_answer_it(desk: Desk, new_desk) -> None:
    desk.say("make a file", [ECHO], ["It is made."])
    desk.button("Later").click()
    expect(desk.dialog).to_be_hidden()
    desk.button("Answer 1 request").click()
    expect(desk.dialog).to_be_visible()
    other = new_desk(f"/{desk.page.url.rpartition('/')[2]}")
    other.button("Allow once").click()
    expect(desk.dialog).to_be_hidden()
    expect(desk.answer).to_contain_text("It is made.")
    assert desk.file("made.txt") == "was-run\n"
    (desk.server.workspace / "made.txt").unlink()


def test_a_question_is_answered_with_options_and_words_of_ones_own_or_dismissed(desk: Desk) -> None:
    options = [{"label": "Red", "description": "a warm one"}, {"label": "Blue", "description": "a cold one"}]
    colour = {"question": "Which colours?", "header": "Colours", "options": options, "multiple": True}
    name = {"question": "Which name?", "header": "Name", "options": [{"label": "Ann", "description": "short"}]}
    desk.say("ask me", [("question", {"questions": [colour, name]})], ["A fine choice."])
    expect(desk.dialog).to_contain_text("a cold one")
    desk.page.get_by_role("checkbox", name="Red").check()
    desk.page.get_by_role("checkbox", name="Blue").check()
    desk.page.get_by_label("Your own answer: Name").fill("Anna")
    desk.page.get_by_role("radio", name="Ann").check()
    expect(desk.page.get_by_label("Your own answer: Name")).to_have_value("")
    desk.page.get_by_label("Your own answer: Name").fill("Zoë")
    desk.button("Answer").click()
    expect(desk.messages.locator(".answers li")).to_have_text(["Which colours?Red, Blue", "Which name?Zoë"])
    expect(desk.answer).to_contain_text("A fine choice.")
    desk.wait_until_idle()
    desk.say("ask me", [("question", {"questions": [name]})])
    expect(desk.button("Answer")).to_be_enabled()
    desk.page.keyboard.press("Escape")
    expect(desk.dialog).to_be_hidden()
    desk.wait_until_idle()
    expect(desk.messages.locator(".tool").last).to_contain_text("failed")


def test_an_answer_is_stopped_a_retry_counted_down_and_an_error_shown(desk: Desk, gate: threading.Event) -> None:
    desk.say("never stop", ["It will never end, ", gate])
    expect(desk.answer).to_contain_text("It will never end,")
    desk.button("Stop").click()
    expect(desk.answer).to_contain_text("Stopped.")
    desk.wait_until_idle()
    expect(desk.answer).to_contain_text("It will never end,")
    gate.set()
    desk.say("hello", [Refusal(429, {"retry-after-ms": "2500"})], ["At last."])
    expect(desk.page.get_by_text("Attempt 1 failed")).to_be_visible()
    expect(desk.page.get_by_text("next try in 2 s")).to_be_visible()
    expect(desk.page.get_by_text("next try in 1 s")).to_be_visible()
    expect(desk.answer).to_contain_text("At last.")
    desk.wait_until_idle()
    desk.say("hello", [Refusal(400)])
    expect(desk.answer.get_by_role("alert")).to_be_visible()
    desk.wait_until_idle()


def test_todos_tokens_and_cost_are_shown(desk: Desk) -> None:
    todos = [
        {"id": "1", "content": "Look around", "status": "completed", "priority": "high"},
        {"id": "2", "content": "Write it down", "status": "in_progress", "priority": "low"},
    ]
    desk.say("plan it", [("todowrite", {"todos": todos})], ["Planned."])
    panel = desk.page.get_by_role("complementary")
    expect(panel.get_by_role("heading", name="Todo 1/2")).to_be_visible()
    expect(panel.get_by_role("listitem")).to_have_text(["completed: Look around", "in progress: Write it down"])
    desk.wait_until_idle()
    expect(panel).to_contain_text(f"120 of {CONTEXT / 1000:.1f}k tokens")
    expect(panel.get_by_role("progressbar")).to_have_attribute("value", "12")
    expect(panel).to_contain_text("Cost$0.02")


def test_reasoning_is_counted_once(desk: Desk) -> None:
    desk.say("think", [Tokens(200, reasoning=15), "Thought."])
    desk.wait_until_idle()
    panel = desk.page.get_by_role("complementary")
    expect(panel).to_contain_text(f"220 of {CONTEXT / 1000:.1f}k tokens")
    expect(panel).to_contain_text("Output20")


def test_a_subagents_session_is_opened_and_left_again(desk: Desk) -> None:
    task = ("task", {"description": "look around", "prompt": "look around well", "subagent_type": "general"})
    desk.ask("send someone", [task], ["The child has looked."], ["All is fine."])
    expect(desk.messages).to_contain_text("The child has looked.")
    expect(desk.messages).not_to_contain_text("task_metadata")
    desk.page.get_by_role("link", name="Open the subagent’s session").click()
    expect(desk.messages).to_contain_text("The child has looked.")
    desk.button("↑ Parent session").click()
    expect(desk.answer).to_contain_text("All is fine.")


def test_that_a_subagent_waits_is_seen_where_another_session_is_open(desk: Desk, new_desk) -> None:
    call = ("task", {"description": "Look", "prompt": "Look for it", "subagent_type": "general"})
    desk.say("delegate", [call], [BASH], ["It is rejected."], ["All is over."])
    expect(desk.dialog).to_be_visible()
    beside = new_desk("/").page.get_by_role("navigation", name="Sessions")
    expect(beside.get_by_role("link").first).to_contain_text("needs your answer")
    desk.button("Reject (Esc)").click()
    desk.wait_until_idle()
    expect(beside.get_by_role("link").first).not_to_contain_text("needs your answer")


def test_commands_and_files_are_offered_while_one_types(desk: Desk) -> None:
    desk.model.play(["A file, then."])
    desk.prompt.press_sequentially("look at @a.t")
    expect(desk.page.get_by_role("option", name="@a.txt")).to_be_visible()
    desk.prompt.press("Enter")
    expect(desk.prompt).to_have_value("look at @a.txt ")
    desk.prompt.press("Enter")
    expect(desk.user_message).to_contain_text("a.txt (text/plain)")
    expect(desk.answer).to_contain_text("A file, then.")
    desk.wait_until_idle()
    desk.prompt.press_sequentially("/ren")
    expect(desk.page.get_by_role("listbox").get_by_role("option")).to_have_text(["/renameRename the session"])
    desk.prompt.press("Tab")
    desk.prompt.press("Enter")
    expect(desk.dialog).to_contain_text("Rename session")


@pytest.mark.parametrize("name", ["50%25.txt", "100%.txt", "a#b?.txt", "back\\slash.txt", "é 文.txt"])
def test_a_file_is_mentioned_whatever_its_name(desk: Desk, name: str) -> None:
    (desk.server.workspace / name).write_text("What is in it.")
    find = f"{desk.server.base}/find/file"
    while name not in httpx2.get(find, params={"query": name}).json():  # a list of the files is kept for a while
        desk.page.wait_for_timeout(200)
    desk.model.play(["A file, then."])
    desk.prompt.press_sequentially(f"look at @{name.split()[0]}")
    desk.page.get_by_role("option", name=f"@{name}").click()
    desk.prompt.press("Enter")
    expect(desk.answer).to_contain_text("A file, then.")
    desk.wait_until_idle()
    assert any("What is in it." in str(request["messages"]) for request in desk.model.requests)  # the last may be the title's


def test_a_command_in_a_folder_is_offered_and_run(desk: Desk) -> None:
    command = desk.server.workspace / ".opencode" / "command" / "git" / "commit.md"
    put_file(command, "Commit with these words: $ARGUMENTS")
    httpx2.post(f"{desk.server.base}/instance/dispose")
    desk.page.reload()
    expect(desk.page.get_by_label("Agent")).to_have_value("build")
    desk.model.play(["It is committed."])
    desk.prompt.press_sequentially("/git/c")
    desk.page.get_by_role("option", name="/git/commit").click()
    desk.prompt.press_sequentially("all is new")
    desk.prompt.press("Enter")
    expect(desk.answer).to_contain_text("It is committed.")
    expect(desk.user_message).to_contain_text("Commit with these words: all is new")
    desk.wait_until_idle()
