"""Searching messages from the page."""

import httpx2
from page_desk import Desk
from playwright.sync_api import Locator, expect

HOSTILE = "</mark><img src=x onerror=alert(1)><script>alert(2)</script> \u202egnirts quokkas"


def store(desk: Desk, title: str, *texts: str) -> str:
    """A session with prompts that nobody answers; its id."""
    with httpx2.Client(base_url=desk.server.base) as client:
        session: str = client.post("/session", json={"title": title}).json()["id"]
        for text in texts:
            body = {"noReply": True, "parts": [{"type": "text", "text": text}]}
            client.post(f"/session/{session}/message", json=body).raise_for_status()
    return session


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


def test_results_follow_what_is_typed(desk: Desk) -> None:
    store(desk, "Marsupials", "numbats here", "numbats there")
    found = find(desk, "numbats")
    expect(found.get_by_role("status")).to_have_text("In 2 messages")
    find(desk, "numbats there")
    expect(found.get_by_role("status")).to_have_text("In 1 message")
    find(desk, "numbats nowhere")
    expect(found.get_by_role("status")).to_have_text("In no message")
    find(desk, "")
    expect(found).to_be_hidden()


def test_hostile_text_stays_text(desk: Desk) -> None:
    store(desk, "<b>bold</b>", HOSTILE)
    found = find(desk, "quokkas <img")
    expect(found.locator("mark")).to_have_text(["<img", "quokkas"])
    expect(found.locator(".session-title")).to_have_text("<b>bold</b>")
    expect(found.locator("img, script, b")).to_have_count(0)
