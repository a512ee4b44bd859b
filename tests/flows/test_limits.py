"""What the server takes on at once is bounded: prompts that wait, sessions that run, the size of a part."""

import asyncio
from pathlib import Path

from running_app import RunningApp, running_app, text_part
from turns import call, requests, say, statuses, texts, until


async def test_more_prompts_than_may_wait_are_refused_and_not_stored(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with running_app(tmp_path, turns=[[say("One."), {"wait": gate}], [say("Rest.")]], max_waiting_prompts=3) as app:
        session = await app.create_session()
        for number in range(3):
            await app.prompt_async(session["id"], f"prompt {number}")
        await until(lambda: requests(app))
        refused = await app.client.post(f"/session/{session['id']}/message", json={"parts": [text_part("one too many")]})
        assert refused.status_code == 429 and refused.headers["retry-after"]
        assert refused.json()["name"] == "TooManyPromptsError" and "not stored" in refused.json()["data"]["message"]
        assert len([message for message in await app.messages(session["id"]) if message["info"]["role"] == "user"]) == 3
        await app.prompt(session["id"], "no answer is wanted of this", noReply=True)
        other = await app.create_session()
        await app.prompt_async(other["id"], "another session")
        gate.set()
        await until(lambda: not app.services.runner.is_running(session["id"]))
        assert texts(await app.prompt(session["id"], "now there is room"))


async def test_sessions_beyond_the_limit_are_busy_and_answered_in_their_turn(tmp_path: Path) -> None:
    gate = asyncio.Event()
    turns = [[say("First."), {"wait": gate}], [say("Second.")], [say("Third.")]]
    async with running_app(tmp_path, turns=turns, max_running_sessions=1) as app:
        first, second, third = [(await app.create_session(title="T"))["id"] for _ in range(3)]
        await app.prompt_async(first, "1")
        await until(lambda: requests(app))
        waiting = asyncio.create_task(app.prompt(second, "2"))
        await app.prompt_async(third, "3")
        await until_busy(app, 3)
        assert len(requests(app)) == 1
        await app.post(f"/session/{third}/abort")
        assert (await app.messages(third))[-1]["info"]["error"]["name"] == "MessageAbortedError"
        gate.set()
        assert texts(await waiting) == ["Second."]


async def until_busy(app: RunningApp, count: int) -> None:
    async with asyncio.timeout(10):
        while len(await statuses(app)) < count:
            await asyncio.sleep(0.005)


async def test_a_subagent_does_not_wait_for_its_parents_place(tmp_path: Path) -> None:
    task = call("task", "c1", description="look", prompt="Look.", subagent_type="general")
    turns = [[task], [say("Found.")], [say("So be it.")]]
    async with running_app(tmp_path, turns=turns, max_running_sessions=1) as app:
        session = await app.create_session(title="T")
        assert texts(await app.prompt(session["id"], "go")) == ["So be it."]


async def test_a_part_has_a_largest_size(tmp_path: Path) -> None:
    async with running_app(tmp_path, max_part_bytes=10_000) as app:
        session = await app.create_session()
        url = f"/session/{session['id']}/message"
        for part in (
            text_part("x" * 10_000),
            {"type": "file", "mime": "image/png", "url": "data:image/png;base64," + "A" * 10_000},
        ):
            refused = await app.post(url, {"parts": [part]}, expect=413)
            assert refused["name"] == "PayloadTooLargeError" and "OPENSESSION_MAX_PART_BYTES" in refused["data"]["message"]
        assert await app.messages(session["id"]) == []
        stored = await app.post(url, {"parts": [text_part("x" * 9_000)], "noReply": True})
        part = {**stored["parts"][0], "text": "x" * 10_000}
        await app.call("PATCH", f"{url}/{part['messageID']}/part/{part['id']}", part, expect=413)


async def test_a_search_for_what_no_title_has_finds_nothing(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        await app.create_session(title="a\0b")
        assert await app.get("/session", params={"search": "\0"}) == []
        assert len(await app.get("/session", params={"search": "A\0B"})) == 1
        assert len(await app.get("/session", params={"search": ""})) == 1
