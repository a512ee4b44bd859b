"""What is done with sessions in the page: revert, unrevert, fork, compact, rename, search, delete, share; searching messages."""

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx2
from page_desk import Desk
from playwright.sync_api import Locator, Route, expect

READ = ("read", {"filePath": "a.txt"})
EDIT = ("edit", {"filePath": "a.txt", "oldString": "hello", "newString": "goodbye"})
WRITE = ("write", {"filePath": "made.txt", "content": "one\ntwo\n"})


def change_two_files(desk: Desk) -> None:
    desk.ask("change two files", [READ], [EDIT, WRITE], ["Both are done."])
    assert (desk.file("a.txt"), desk.file("made.txt")) == ("goodbye\nworld\n", "one\ntwo\n")


def choose(desk: Desk, item: str) -> None:
    desk.button("Session menu").click()
    desk.page.get_by_role("menuitem", name=item).click()


def rename(desk: Desk, title: str) -> None:
    choose(desk, "Rename…")
    desk.page.get_by_label("Title").fill(title)
    desk.page.keyboard.press("Enter")
    expect(desk.page.get_by_role("heading", level=1)).to_have_text(title)


def store(desk: Desk, title: str, *texts: str) -> str:
    """A session with prompts that nobody answers; its id."""
    with httpx2.Client(base_url=desk.server.base) as client:
        session: str = client.post("/session", json={"title": title}).json()["id"]
        for text in texts:
            client.post(f"/session/{session}/message", json=prompt(text)).raise_for_status()
    return session


def prompt(text: str) -> dict[str, Any]:
    """Nobody answers it."""
    return {"noReply": True, "parts": [{"type": "text", "text": text}]}


def test_a_revert_shows_its_difference_first_and_unrevert_takes_it_back(desk: Desk) -> None:
    change_two_files(desk)
    expect(desk.messages.locator(".tool", has_text="edit").locator(".row.added")).to_contain_text("goodbye")
    files = desk.page.get_by_role("region", name="Changed files")
    expect(files.get_by_role("button")).to_have_text(["a.txt +1 −1", "made.txt +2 −0"])
    files.get_by_role("button", name="a.txt +1 −1").click()
    rows = desk.dialog.locator(".row")
    expect(rows).to_have_text([re.compile("removed: hello"), re.compile("added: goodbye"), re.compile("world")])
    colours = rows.evaluate_all("rows => rows.map(row => getComputedStyle(row).backgroundColor)")
    assert len(set(colours)) == 3
    desk.page.keyboard.press("Escape")
    expect(desk.dialog).to_be_hidden()

    desk.user_message.hover()
    desk.user_message.get_by_role("button", name="Revert").click()
    expect(desk.dialog.locator(".row.added")).to_have_text(re.compile("hello"))
    expect(desk.dialog.locator(".row.removed")).to_have_text([re.compile(word) for word in ("goodbye", "one", "two")])
    expect(desk.dialog.locator(".file header")).to_have_text(["a.txt+1 −1", "made.txt+0 −2"])
    assert desk.file("made.txt") is not None, "the files are as they were until the revert is confirmed"
    desk.dialog.get_by_role("button", name="Cancel").click()
    expect(desk.dialog).to_be_hidden()
    assert desk.file("made.txt") is not None

    desk.user_message.hover()
    desk.user_message.get_by_role("button", name="Revert").click()
    desk.dialog.get_by_role("button", name="Revert").click()
    expect(desk.page.get_by_text("1 prompt and all that followed reverted.")).to_be_visible()
    expect(desk.messages.get_by_text("Both are done.")).to_be_hidden()
    expect(desk.prompt).to_have_value("change two files")
    expect(files.get_by_role("heading")).to_have_text("Reverted changes")
    assert (desk.file("a.txt"), desk.file("made.txt")) == ("hello\nworld\n", None)

    desk.button("Undo revert").click()
    expect(desk.answer).to_contain_text("Both are done.")
    expect(desk.button("Undo revert")).to_be_hidden()
    expect(desk.prompt).to_have_value("")
    expect(files.get_by_role("heading")).to_have_text("Changes")
    assert (desk.file("a.txt"), desk.file("made.txt")) == ("goodbye\nworld\n", "one\ntwo\n")

    desk.say("/undo")
    desk.dialog.get_by_role("button", name="Revert").click()
    expect(desk.button("Undo revert")).to_be_visible()
    desk.ask("another way", ["Gone for good."])
    expect(desk.messages.locator(".message")).to_have_count(2)
    expect(desk.button("Undo revert")).to_be_hidden()


def test_that_there_is_no_undo_is_said_before_and_at_the_revert(desk: Desk) -> None:
    (desk.server.workspace / "opencode.json").write_text('{"snapshot": false}')
    desk.ask("hello", ["Hello."])
    expect(desk.page.get_by_text("No undo here: snapshots are switched off")).to_be_visible()
    change_two_files(desk)
    desk.user_message.last.hover()
    desk.user_message.last.get_by_role("button", name="Revert").click()
    expect(desk.dialog).to_contain_text("No undo here: snapshots are switched off")
    expect(desk.dialog.locator("li")).to_have_text([re.compile("a.txt"), re.compile("made.txt")])
    desk.dialog.get_by_role("button", name="Cancel").click()


def test_a_fork_has_what_stands_before_the_message_and_offers_its_text(desk: Desk) -> None:
    desk.ask("first question", ["The first answer."])
    desk.ask("second question", ["The second answer."])
    before = desk.page.url
    desk.user_message.hover()
    desk.user_message.get_by_role("button", name="Fork").click()
    expect(desk.page.get_by_role("heading", level=1)).to_have_text("A scripted title (fork #1)")
    expect(desk.prompt).to_have_value("second question")
    expect(desk.messages).to_contain_text("The first answer.")
    expect(desk.messages).not_to_contain_text("The second answer.")
    assert desk.page.url != before
    desk.page.go_back()
    expect(desk.messages).to_contain_text("The second answer.")


def test_a_session_is_renamed_found_and_deleted_and_a_long_title_cut(desk: Desk) -> None:
    for title in ("Grey whales", "Blue whales"):
        desk.button("New session").click()
        desk.ask("hello", ["Hi."])
        rename(desk, title)
    sessions = desk.page.get_by_role("navigation", name="Sessions")
    store(desk, "Crème brûlée")
    for words, title in {"gREY": "Grey whales", "CREME Brul": "Crème brûlée"}.items():
        desk.page.get_by_role("searchbox").fill(words)
        expect(sessions.get_by_role("link")).to_have_text([re.compile(title)])
    desk.page.get_by_role("searchbox").fill("no such title")
    expect(sessions.get_by_text("No session title matches.")).to_be_visible()
    desk.page.get_by_role("searchbox").fill("")
    sessions.get_by_role("link", name="Grey whales").click()
    expect(desk.page.get_by_role("heading", level=1)).to_have_text("Grey whales")
    choose(desk, "Delete…")
    desk.dialog.get_by_role("button", name="Delete").click()
    expect(desk.page.get_by_role("heading", level=1)).to_have_text("New session")
    expect(sessions.get_by_role("link", name="Grey whales")).to_have_count(0)
    expect(desk.prompt).to_be_focused()
    assert "#ses_" not in desk.page.url
    sessions.get_by_role("link", name="Blue whales").click()
    expect(desk.page.get_by_role("heading", level=1)).to_have_text("Blue whales")
    rename(desk, "a long title " * 20)
    assert sessions.evaluate("list => list.scrollWidth <= list.clientWidth")
    assert desk.page.get_by_role("searchbox").bounding_box()["width"] < 300


def test_how_long_ago_a_session_changed_stays_true(desk: Desk) -> None:
    desk.page.add_init_script("""
        const every = window.setInterval;
        window.setInterval = (work, time) => every(work, time === 60_000 ? 50 : time);
    """)
    desk.page.reload()
    desk.ask("hello", ["Hi."])
    ago = desk.page.get_by_role("navigation", name="Sessions").locator("time").first
    expect(ago).to_have_text("now")
    desk.page.clock.set_fixed_time(time.time() + 3 * 60)
    expect(ago).to_have_text("3 min. ago")


def test_a_prompt_is_sent_though_another_session_is_opened_while_its_own_one_is(desk: Desk) -> None:
    opening: list[Route] = []
    desk.page.route(re.compile("/session/ses_.*/message"), lambda route: opening.append(route), times=1)
    desk.model.play(["Here it is."])
    desk.prompt.fill("where is it")
    desk.prompt.press("Enter")
    expect(desk.button("Send")).to_be_disabled()
    while not opening:
        desk.page.wait_for_timeout(20)
    with desk.page.expect_response(lambda answer: "/prompt_async" in answer.url):
        desk.button("New session").click()
    opening[0].continue_()
    expect(desk.button("Send")).to_be_enabled()


def test_earlier_messages_are_read_when_they_are_wanted(desk: Desk) -> None:
    session = store(desk, "Long", *(f"prompt {number}." for number in range(110)))
    desk.page.goto(f"{desk.server.base}/#{session}")
    messages = desk.messages.locator(".message")
    expect(messages.last).to_contain_text("prompt 109.")
    expect(messages).to_have_count(100)
    desk.button("Show earlier messages").click()
    expect(messages).to_have_count(110)
    expect(messages.first).to_contain_text("prompt 0.")
    expect(desk.messages.get_by_text("prompt 10.", exact=True)).to_be_in_viewport()
    expect(desk.button("Show earlier messages")).to_be_hidden()


def test_a_prompt_that_is_not_loaded_is_not_shown_again_when_it_changes(desk: Desk) -> None:
    gate = threading.Event()
    steps = [[("glob", {"pattern": f"*.{number}"})] for number in range(101)]
    desk.say("many steps", *steps, ["Now ", gate, WRITE], ["It is written."])
    expect(desk.answer).to_contain_text("Now")
    desk.page.reload()
    expect(desk.answer).to_contain_text("Now")
    expect(desk.button("Show earlier messages")).to_be_visible()
    gate.set()
    expect(desk.answer).to_contain_text("It is written.")
    desk.wait_until_idle()
    expect(desk.page.get_by_role("region", name="Changed files").get_by_role("button")).to_have_count(1)
    expect(desk.messages.locator(".message.user")).to_have_count(0)


def test_what_a_revert_of_an_earlier_message_took_back_is_not_shown(desk: Desk) -> None:
    session = store(desk, "Long", *(f"prompt {number}." for number in range(105)))
    with httpx2.Client(base_url=f"{desk.server.base}/session/{session}") as client:
        second = client.get("/message").json()[1]["info"]["id"]
        client.post("/revert", json={"messageID": second}).raise_for_status()
    desk.page.goto(f"{desk.server.base}/#{session}")
    expect(desk.button("Undo revert")).to_be_visible()
    expect(desk.messages.locator(".message")).to_have_count(0)
    desk.button("Show earlier messages").click()
    expect(desk.messages.locator(".message")).to_have_text([re.compile(r"prompt 0\.")])


def test_sessions_that_are_not_in_the_list_yet_are_found_and_shown(desk: Desk) -> None:
    for title in ("A needle", *(f"Hay {number}" for number in range(100))):
        store(desk, title)
    desk.page.reload()
    sessions = desk.page.get_by_role("navigation", name="Sessions")
    expect(sessions.get_by_role("link")).to_have_count(100)
    needle = sessions.get_by_role("link", name="A needle")
    desk.page.get_by_role("searchbox").fill("needle")
    expect(needle).to_be_visible()
    desk.page.reload()
    expect(needle).to_have_count(0)
    desk.button("Show more").click()
    expect(needle).to_have_count(1)


def test_a_session_is_shown_though_its_parent_is_not_there(desk: Desk) -> None:
    child = httpx2.post(f"{desk.server.base}/session", json={"parentID": "ses_gone", "title": "Left alone"}).json()["id"]
    desk.page.goto(f"{desk.server.base}/#{child}")
    expect(desk.page.get_by_role("heading", name="Left alone")).to_be_visible()
    assert [line for line in desk.noise if "404" not in line] == []
    desk.noise.clear()


def test_two_windows_show_the_same_after_a_reload_and_a_compaction_too(desk: Desk, new_desk: Callable[..., Desk]) -> None:
    desk.ask("hello", ["Hi."])
    other = new_desk(f"/{desk.page.url.rpartition('/')[2]}")
    expect(other.answer).to_contain_text("Hi.")
    desk.say("and now", ["The same in both."])
    expect(other.answer).to_contain_text("The same in both.")
    expect(other.messages.get_by_text("The same in both.")).to_have_count(1)
    desk.wait_until_idle()
    desk.page.reload()
    expect(desk.answer).to_contain_text("The same in both.")
    expect(desk.user_message).to_contain_text("and now")
    desk.model.play(["What was done so far."])
    choose(desk, "Compact")
    for each in (desk, other):
        expect(each.messages).to_contain_text("The conversation was compacted here")
        expect(each.messages.locator(".summary")).to_contain_text("What was done so far.")
    desk.wait_until_idle()


def test_a_shared_session_is_read_by_its_link_until_it_is_unshared(desk: Desk, new_desk: Callable[..., Desk]) -> None:
    change_two_files(desk)
    choose(desk, "Share")
    link = desk.dialog.get_by_role("link").inner_text()
    assert link.startswith(f"{desk.server.base}/s/")
    visitor = new_desk(link.removeprefix(desk.server.base))
    expect(visitor.page.get_by_role("heading", level=1)).to_have_text("A scripted title")
    expect(visitor.messages).to_contain_text("change two files")
    expect(visitor.messages).to_contain_text("Both are done.")
    expect(visitor.page.get_by_role("button", name="a.txt +1 −1")).to_be_visible()
    expect(visitor.prompt).to_have_count(0)
    expect(visitor.button("Revert")).to_have_count(0)

    desk.button("Stop sharing").click()
    expect(desk.button("Shared")).to_be_hidden()
    response = visitor.page.reload()
    assert response is not None and response.status == 404
    expect(visitor.page.get_by_role("heading", level=2)).to_have_text("This link is no longer shared")
    assert [line for line in visitor.noise if "404" not in line] == []
    visitor.noise.clear()


def test_sharing_is_not_offered_where_it_is_turned_off(desk: Desk) -> None:
    def turned_off(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, json={**answer.json(), "share": "disabled"})

    desk.page.route("**/config", turned_off)
    desk.page.reload()
    desk.ask("hi", ["Hello."])
    desk.button("Session menu").click()
    expect(desk.page.get_by_role("menuitem", name="Rename…")).to_be_visible()
    expect(desk.page.get_by_role("menuitem", name="Share")).to_have_count(0)
    desk.page.keyboard.press("Escape")
    desk.prompt.press_sequentially("/")
    expect(desk.page.get_by_role("option", name="/rename")).to_be_visible()
    expect(desk.page.get_by_role("option", name="/share")).to_have_count(0)


# Searching messages.


HOSTILE = "</mark><img src=x onerror=alert(1)><script>alert(2)</script> \u202egnirts quokkas"


def find(desk: Desk, words: str) -> Locator:
    desk.page.get_by_role("searchbox", name="Search sessions").fill(words)
    return desk.page.get_by_role("region", name="In messages")


def test_a_result_shows_the_words_and_opens_the_message_at_its_place(desk: Desk) -> None:
    """It is older than the page of messages that a session is opened with."""
    texts = [f"Line {number} of a long talk.\n" + "And more of it.\n" * 10 for number in range(130)]
    texts[7] = "🎉 Here a Wombat digs, and wombats sleep."
    session = store(desk, "Burrows", *texts)
    found = find(desk, "WOMBAT digs")
    expect(found.get_by_role("status")).to_have_text("In 1 message")
    expect(found.locator("mark")).to_have_text(["Wombat", "digs", "wombat"])
    expect(found.get_by_role("link")).to_contain_text("Burrows")
    found.get_by_role("link").click()
    message = desk.page.locator(".message.user", has_text="Here a Wombat digs")
    expect(message).to_be_in_viewport()
    expect(message).to_be_focused()
    assert f"#{session}/msg_" in desk.page.url
    desk.page.reload()
    expect(message).to_be_in_viewport()


def test_results_follow_what_is_typed_and_hostile_text_stays_text(desk: Desk) -> None:
    untitled = httpx2.post(f"{desk.server.base}/session").json()["id"]
    httpx2.post(f"{desk.server.base}/session/{untitled}/message", json=prompt("bilbies")).raise_for_status()
    expect(find(desk, "bilbies").locator(".session-title")).to_have_text("New session")
    store(desk, "Marsupials", "numbats here", "numbats there")
    typed = {"numbats": "In 2 messages", "numbats there": "In 1 message", "numbats nowhere": "In no message"}
    for words, said in typed.items():
        expect(find(desk, words).get_by_role("status")).to_have_text(said)
    expect(find(desk, "")).to_be_hidden()
    store(desk, "<b>bold</b>", HOSTILE)
    found = find(desk, "quokkas <img")
    expect(found.locator("mark")).to_have_text(["<img", "quokkas"])
    expect(found.locator(".session-title")).to_have_text("<b>bold</b>")
    expect(found.locator("img, script, b")).to_have_count(0)
