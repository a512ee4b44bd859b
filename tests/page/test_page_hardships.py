"""What the page must bear: hostile text, a megabyte, a server that goes away, a narrow window, no mouse."""

import re
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

import httpx2
import pytest
from cable import cable
from model_server import Reasoning
from page_desk import Desk
from playwright.sync_api import Page, Route, expect
from running_server import RunningServer, start_serving, stop, wait_until_it_answers

RIGHT_TO_LEFT = "\u202e"
HOSTILE = f"""\
<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script>

[click me](javascript:window.hacked=1) [data](data:text/html,<script>1</script>) ![beacon](http://127.0.0.1:9/beacon.png)

<svg onload=window.hacked=1> **<b onclick=window.hacked=1>bold</b>** {RIGHT_TO_LEFT}txt.exe

```html
</code></pre><script>window.hacked = 1</script>
```

{"| <i>cell</i> " * 3}|
|---|---|---|
| </td><script>window.hacked=1</script> | b | c |

> <iframe src="javascript:window.hacked=1"></iframe>

{"x" * 30_000}
"""
COMMAND = ("bash", {"command": f"echo '{RIGHT_TO_LEFT}<img src=x onerror=window.hacked=1>'", "description": "<b>Hostile</b>"})
MEGABYTE_PIECES = 250
FREEZE_MS = 5000
"""A fifth of it on a machine that does nothing else; rendering all of the text with each piece takes many times as long."""
MAX_FRAME_UNTIL = """\
(paragraphs) => new Promise((resolve) => {
    let [longest, last] = [0, performance.now()];
    requestAnimationFrame(function frame(now) {
        [longest, last] = [Math.max(longest, now - last), now];
        if (document.querySelectorAll('.message:last-child .markdown p').length >= paragraphs) resolve(longest);
        else requestAnimationFrame(frame);
    });
})"""
PIECE = "A line of *text* with `code`, **bold** and [a link](http://127.0.0.1/).\n\n" * 55


def widths(page: Page) -> tuple[int, int]:
    return page.evaluate("[document.scrollingElement.scrollWidth, innerWidth]")


def test_what_a_model_says_stays_text(desk: Desk) -> None:
    requests: list[str] = []
    desk.page.on("request", lambda request: requests.append(request.url))
    desk.say(f"<img src=x onerror=window.hacked=1> {HOSTILE[:400]}", [HOSTILE, COMMAND], ["Over."])
    expect(desk.dialog.locator("pre.command")).to_have_text("echo '⟨U+202E⟩<img src=x onerror=window.hacked=1>'")
    desk.button("Reject (Esc)").click()
    desk.wait_until_idle()
    answer = desk.messages.locator(".message.assistant").first
    expect(answer).to_contain_text('<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script>')
    expect(answer).to_contain_text("[click me](javascript:window.hacked=1)")
    assert answer.locator("img, script, svg, iframe, b, i").count() == 0
    links = answer.get_by_role("link").evaluate_all("links => links.map(link => [link.href, link.rel])")
    assert links == [["http://127.0.0.1:9/beacon.png", "noopener noreferrer nofollow"]]
    assert desk.page.evaluate("window.hacked") is None
    assert [url for url in requests if not url.startswith(desk.server.base)] == []
    shown, room = widths(desk.page)
    assert shown <= room


def test_hostile_names_diffs_titles_and_questions_stay_text_also_for_who_follows_the_link(
    desk: Desk, new_desk: Callable[..., Desk]
) -> None:
    markup = "<img src=x onerror=window.hacked=1>"
    question = {"question": markup, "header": markup, "options": [{"label": markup, "description": markup}]}
    todo = {"id": "1", "content": markup, "status": "pending", "priority": "high"}
    calls = [
        ("write", {"filePath": f"{markup}.txt", "content": f"</div>{markup}\n"}),
        ("todowrite", {"todos": [todo]}),
        ("question", {"questions": [question]}),
    ]
    desk.say("go", [Reasoning(markup), *calls], [f"[{markup}](https://example.com/'\"><script>window.hacked=1</script>)"])
    expect(desk.dialog.get_by_role("heading")).to_have_text(markup)
    desk.page.get_by_role("radio").check()
    desk.button("Answer").click()
    desk.wait_until_idle()
    desk.say("/rename")
    desk.page.get_by_label("Title").fill(markup)
    desk.page.keyboard.press("Enter")
    expect(desk.page.get_by_role("heading", level=1)).to_have_text(markup)
    expect(desk.page.get_by_role("navigation").get_by_role("link").first).to_contain_text(markup)
    desk.page.get_by_role("button", name=f"{markup}.txt").click()
    expect(desk.dialog.locator(".row.added")).to_contain_text(f"</div>{markup}")
    desk.page.keyboard.press("Escape")
    desk.say("/share")
    visitor = new_desk(desk.dialog.get_by_role("link").inner_text())
    expect(visitor.page.get_by_role("heading", level=1)).to_have_text(markup)
    for shown in (desk, visitor):
        expect(shown.page.get_by_role("complementary").get_by_text(f"pending: {markup}")).to_be_visible()
        assert shown.page.locator("img, iframe, body script").count() == 0
        assert shown.page.evaluate("window.hacked") is None


def test_characters_that_nobody_sees_are_shown_by_their_numbers(desk: Desk) -> None:
    hidden = "\u00ad\u034f\u061c\u180e\u200b\u2028\u202e\u2066\u3164\ufeff\ufff9\U000e0041"
    desk.say("go", [("bash", {"command": f"echo {hidden}❤️ é 文", "description": "Says it"})], ["Over."])
    numbers = "".join(f"⟨U+{ord(each):04X}⟩" for each in hidden)
    expect(desk.dialog.locator("pre.command")).to_have_text(f"echo {numbers}❤️ é 文")
    desk.button("Reject (Esc)").click()
    desk.wait_until_idle()


def test_arguments_and_metadata_of_the_wrong_kind_are_shown(desk: Desk) -> None:
    """A model writes the ones, and whoever makes a document that is imported also the others."""
    odd = [
        ("write", {"filePath": 5, "content": {"odd": "content"}}),
        ("question", {"questions": [None, 5, {"question": {"odd": "question"}}]}),
        ("bash", {"command": {"odd": "command"}}),
        ("task", {"prompt": {"odd": "prompt"}}),
    ]
    desk.ask("go", odd, ["All were told."])
    for word in ("content", "question", "command", "prompt"):
        expect(desk.messages.get_by_text(f'"odd": "{word}"').first).to_be_attached()
    metadata = {
        "diff": {"a": 1},
        "output": 5,
        "answers": "x",
        "formatErrors": "abc",
        "exit": {},
        "sessionId": 5,
        "diagnostics": {"x": [None, {"path": 5, "severity": 1}]},
    }
    with httpx2.Client(base_url=desk.server.base) as client:
        document = client.get(f"/session/{desk.page.url.rpartition('#')[2]}/export").json()
        for part in [part for message in document["messages"] for part in message["parts"] if part["type"] == "tool"]:
            part["state"] |= {"status": "completed", "title": "", "output": "", "metadata": metadata}
        imported = client.post("/session/import?ids=new", json=document).raise_for_status().json()["info"]["id"]
    desk.page.goto(f"{desk.server.base}/#{imported}")
    expect(desk.answer).to_contain_text("All were told.")


def test_a_script_that_got_into_the_page_would_not_run(desk: Desk) -> None:
    desk.page.evaluate(
        """() => {
            const script = document.createElement('script');
            script.textContent = 'window.hacked = 1';
            document.body.append(script);
            document.body.setAttribute('style', 'color: red');
        }"""
    )
    expect(desk.page.locator("body")).not_to_have_css("color", "rgb(255, 0, 0)")
    assert desk.page.evaluate("window.hacked") is None
    assert len(desk.noise) == 2
    forgive(desk, "Content Security Policy")


def test_a_megabyte_streams_without_freezing_the_page(desk: Desk, gate: threading.Event) -> None:
    """The longest time between two frames, as the page itself measures it (a locator would take its share of that time)."""
    desk.say("a lot", ["It begins.\n\n", gate, *[PIECE] * MEGABYTE_PIECES, "It ends."])
    expect(desk.answer).to_contain_text("It begins.")
    paragraphs = 55 * MEGABYTE_PIECES + 2
    gate.set()
    assert desk.page.evaluate(MAX_FRAME_UNTIL, paragraphs) < FREEZE_MS


@pytest.mark.parametrize("is_known", [True, False], ids=["a cursor that is known", "one that is not: everything is read anew"])
def test_an_answer_goes_on_where_it_was_when_the_connection_is_back(
    new_desk: Callable[..., Desk], server: RunningServer, gate: threading.Event, is_known: bool
) -> None:
    with cable(urlsplit(server.base).port or 0) as wire:
        desk = new_desk(wire.base)
        desk.say("hello", ["one ", gate, "two ", "three"])
        expect(desk.answer).to_contain_text("one")
        if is_known:
            with desk.page.expect_request(lambda request: "/event" in request.url) as resumed:
                wire.cut()
            assert (resumed.value.headers.get("last-event-id") or "").isdigit()
        else:
            desk.page.route("**/event?*", forget_the_cursor, times=1)
            with desk.page.expect_response(lambda response: response.url.endswith("/message?limit=100")):
                wire.cut()
        gate.set()
        expect(desk.answer.locator(".markdown")).to_have_text("one two three")
        desk.wait_until_idle()
        desk.page.close()
        forgive(desk, "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION", "ERR_EMPTY_RESPONSE")


def forget_the_cursor(route: Route) -> None:
    route.continue_(headers={**route.request.headers, "last-event-id": str(10**15)})


def forgive(desk: Desk, *reasons: str) -> None:
    """The browser itself notes a connection that was cut; anything else it says counts."""
    assert [line for line in desk.noise if not any(reason in line for reason in reasons)] == []
    desk.noise.clear()


def test_nothing_is_lost_or_doubled_when_the_server_restarts(desk: Desk, gate: threading.Event) -> None:
    desk.ask("first", ["Before the restart."])
    desk.say("second", ["It was saying ", gate])
    expect(desk.answer).to_contain_text("It was saying")
    with desk.page.expect_request(lambda request: "/event" in request.url, timeout=120_000) as resumed:
        restart(desk.server)
    assert (resumed.value.headers.get("last-event-id") or "").isdigit()
    expect(desk.page.get_by_text("Connection lost")).to_be_hidden()
    desk.wait_until_idle()
    expect(desk.messages.get_by_text("Before the restart.")).to_have_count(1)
    expect(desk.messages.get_by_text("It was saying")).to_have_count(1)
    gate.set()
    desk.ask("third", ["And after it."])
    shown = desk.messages.locator(".message").count()
    desk.page.reload()
    expect(desk.answer).to_contain_text("And after it.")
    assert desk.messages.locator(".message").count() == shown
    forgive(desk, "ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING")


def test_it_is_said_where_the_browser_lets_nothing_be_copied(desk: Desk) -> None:
    """A server on another machine without HTTPS."""
    desk.page.add_init_script("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    desk.page.reload()
    desk.ask("hello", ["Hi."])
    desk.answer.hover()
    desk.answer.get_by_role("button", name="Copy").click()
    expect(desk.page.get_by_role("alert").get_by_text("by HTTPS alone")).to_be_visible()


def test_a_prompt_that_does_not_reach_the_server_stays_where_it_is(desk: Desk) -> None:
    desk.page.route("**/session", lambda route: route.abort(), times=1)
    desk.model.play(["Here I am."])
    desk.prompt.fill("are you there?")
    desk.prompt.press("Enter")
    expect(desk.page.get_by_role("alert").filter(has_text="The server cannot be reached.")).to_be_visible()
    expect(desk.prompt).to_have_value("are you there?")
    desk.prompt.press("Enter")
    expect(desk.answer).to_contain_text("Here I am.")
    forgive(desk, "ERR_FAILED")


def restart(server: RunningServer) -> None:
    """The same server once more; the fixture stops the process that runs then."""
    process, directory = server.process, server.data.parent
    environment = process.environ()
    stop(process)
    server.process = start_serving(server.workspace, environment, directory / "again.log", server.port, process.args)
    wait_until_it_answers(server.process, server.base, directory / "again.log")


def test_a_phone_shows_all_of_it_without_scrolling_sideways(new_desk: Callable[..., Desk]) -> None:
    desk = new_desk(width=375, height=700)
    table = "| a column | another column | a third column |\n|---|---|---|\n" + f"| {'wide' * 30} | b | c |\n"
    code = f"```\n{'long line ' * 40}\n```\n"
    todos = [{"id": "1", "content": "Look around", "status": "pending", "priority": "high"}]
    turn = [f"# A heading\n\n{table}\n{code}\n{'unbroken' * 60}", ("todowrite", {"todos": todos})]
    desk.say("show me " + "everything" * 20, turn, ["Done."])
    expect(desk.messages).to_contain_text("Done.")
    desk.wait_until_idle()
    shown, room = widths(desk.page)
    assert shown <= room == 375
    sideways = desk.page.evaluate("[...document.querySelectorAll('.scroller')].map(box => box.scrollWidth - box.clientWidth)")
    assert sideways == [0]

    navigation = desk.page.get_by_role("navigation", name="Sessions")
    expect(navigation).to_be_hidden()
    desk.button("Sessions").click()
    expect(navigation.get_by_role("link").first).to_be_visible()
    desk.page.keyboard.press("Escape")
    expect(navigation).to_be_hidden()
    desk.button("Usage, todo and changes").click()
    expect(desk.page.get_by_role("complementary").get_by_text("Look around")).to_be_visible()
    desk.page.keyboard.press("Escape")
    for target in ("Send", "Sessions", "Usage, todo and changes", "Session menu"):
        box = desk.button(target).bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 375


def test_a_drawer_closes_by_esc_by_its_link_and_where_there_is_room(new_desk: Callable[..., Desk], gate: threading.Event) -> None:
    desk = new_desk(width=375, height=700)
    desk.say("begin", ["It begins", gate, " and ends."])
    expect(desk.answer).to_contain_text("It begins")
    sessions = desk.button("Sessions")
    sessions.click()
    desk.page.keyboard.press("Escape")
    expect(sessions).to_be_focused()
    desk.page.wait_for_timeout(300)
    gate.set()
    expect(desk.answer).to_contain_text("It begins and ends.")
    desk.wait_until_idle()
    sessions.click()
    desk.page.get_by_role("navigation", name="Sessions").locator("a[aria-current]").click()
    expect(sessions).to_have_attribute("aria-expanded", "false")
    sessions.click()
    desk.page.set_viewport_size({"width": 1280, "height": 700})
    expect(desk.page.locator("#open-sessions")).to_have_attribute("aria-expanded", "false")
    desk.prompt.click()
    expect(desk.prompt).to_be_focused()


def test_a_prompt_a_permission_and_a_revert_need_no_mouse(desk: Desk) -> None:
    keys = desk.page.keyboard
    make = ("bash", {"command": "echo was-run > made.txt", "description": "Makes a file"})
    desk.model.play([make], ["It is made."])
    keys.press("n")
    expect(desk.prompt).to_be_focused()
    keys.type("make a file")
    keys.press("Enter")
    expect(desk.button("Allow once")).to_be_focused()
    for _ in range(8):  # the focus stays in the dialog, whichever way it goes
        keys.press("Tab")
        assert desk.page.evaluate("document.activeElement === document.body || Boolean(document.activeElement.closest('dialog'))")
    desk.button("Allow once").focus()
    keys.press("Enter")
    expect(desk.answer).to_contain_text("It is made.")
    desk.wait_until_idle()
    assert desk.file("made.txt") == "was-run\n"

    desk.prompt.blur()
    keys.press("k")
    expect(desk.answer).to_be_focused()
    for _ in range(2):
        keys.press("k")
    expect(desk.user_message).to_be_focused()
    keys.press("r")
    expect(desk.dialog).to_contain_text("Revert to before this prompt?")
    keys.press("Enter")
    expect(desk.button("Undo revert")).to_be_visible()
    expect(desk.prompt).to_have_value("make a file")
    assert desk.file("made.txt") is None
    desk.prompt.blur()
    keys.press("m")
    expect(desk.page.get_by_role("menuitem", name="Rename…")).to_be_focused()
    keys.press("Tab")
    expect(desk.page.get_by_role("menu")).to_be_hidden()
    keys.press("Shift+U")
    expect(desk.button("Undo revert")).to_be_hidden()
    assert desk.file("made.txt") == "was-run\n"


def test_the_help_lists_the_keys_turns_single_ones_off_and_a_key_meant_for_the_prompt_allows_nothing(desk: Desk) -> None:
    keys = desk.page.keyboard
    keys.press("?")
    expect(desk.dialog).to_contain_text(re.compile("Stop the answer"))
    desk.page.get_by_label("Single keys work outside text fields").uncheck()
    keys.press("Escape")
    expect(desk.dialog).to_be_hidden()
    keys.press("?")
    expect(desk.dialog).to_be_hidden()
    desk.button("Keyboard shortcuts").click()
    desk.page.get_by_label("Single keys work outside text fields").check()
    keys.press("Escape")
    expect(desk.dialog).to_be_hidden()
    make = ("bash", {"command": "echo was-run > made.txt", "description": "Makes a file"})
    desk.page.evaluate("""() => {
        const start = window.setTimeout;
        window.setTimeout = (work, time, ...rest) => start(work, time === 350 ? 10_000 : time, ...rest);
    }""")  # a slow machine must not miss the moment
    desk.say("make a file", [make], ["It is made."])
    desk.page.wait_for_selector("dialog[open]")
    assert desk.button("Allow once").is_disabled(), "for a moment"
    desk.page.keyboard.press("Enter")
    desk.page.keyboard.press("Escape")
    expect(desk.button("Allow once")).to_be_enabled()
    expect(desk.dialog).to_be_visible()
    assert desk.file("made.txt") is None
    desk.button("Reject (Esc)").click()
