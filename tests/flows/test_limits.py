"""What the server takes on is bounded: prompts that wait, sessions that run, the sizes of parts, projects and snapshots."""

import asyncio
import os
from pathlib import Path

import pytest
from running_app import make_workspace, running_app, text_part
from turns import infos, parts, play, requests, say, statuses, talking, task, texts, until, until_done, write


async def test_more_prompts_than_may_wait_are_refused_and_not_stored(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with talking(tmp_path, turns=[[say("One."), {"wait": gate}], [say("Rest.")]], max_waiting_prompts=3) as (app, session):
        for number in range(3):
            await app.prompt_async(session, f"prompt {number}")
        await until(lambda: requests(app))
        refused = await app.client.post(f"/session/{session}/message", json={"parts": [text_part("one too many")]})
        assert refused.status_code == 429 and refused.headers["retry-after"]
        assert refused.json()["name"] == "TooManyPromptsError" and "not stored" in refused.json()["data"]["message"]
        assert len(infos(await app.messages(session))) == 3
        await app.prompt(session, "no answer is wanted of this", noReply=True)
        other = await app.create_session()
        await app.prompt_async(other["id"], "another session")
        gate.set()
        await until_done(app, session)
        assert texts(await app.prompt(session, "now there is room"))


async def test_sessions_beyond_the_limit_are_busy_and_answered_in_their_turn(tmp_path: Path) -> None:
    gate = asyncio.Event()
    turns = [[say("First."), {"wait": gate}], [say("Second.")], [say("Third.")]]
    async with running_app(tmp_path, turns=turns, max_running_sessions=1) as app:
        first, second, third = [(await app.create_session(title="T"))["id"] for _ in range(3)]
        await app.prompt_async(first, "1")
        await until(lambda: requests(app))
        waiting = asyncio.create_task(app.prompt(second, "2"))
        await app.prompt_async(third, "3")

        async def are_busy() -> bool:
            return len(await statuses(app)) == 3

        await until(are_busy, "three busy sessions")
        assert len(requests(app)) == 1
        await app.post(f"/session/{third}/abort")
        assert (await app.messages(third))[-1]["info"]["error"]["name"] == "MessageAbortedError"
        gate.set()
        assert texts(await waiting) == ["Second."]


async def test_a_subagent_does_not_wait_for_its_parents_place(tmp_path: Path) -> None:
    turns = [[task()], [say("Found.")], [say("So be it.")]]
    async with talking(tmp_path, turns=turns, max_running_sessions=1, title="T") as (app, session):
        assert texts(await app.prompt(session, "go")) == ["So be it."]


async def test_a_part_has_a_largest_size(tmp_path: Path) -> None:
    async with talking(tmp_path, max_part_bytes=10_000) as (app, session):
        url = f"/session/{session}/message"
        image = {"type": "file", "mime": "image/png", "url": "data:image/png;base64," + "A" * 10_000}
        for part in (text_part("x" * 10_000), image):
            refused = await app.post(url, {"parts": [part]}, expect=413)
            assert refused["name"] == "PayloadTooLargeError" and "OPENSESSION_MAX_PART_BYTES" in refused["data"]["message"]
        assert await app.messages(session) == []
        stored = await app.post(url, {"parts": [text_part("x" * 9_000)], "noReply": True})
        part = {**stored["parts"][0], "text": "x" * 10_000}
        await app.call("PATCH", f"{url}/{part['messageID']}/part/{part['id']}", part, expect=413)


async def test_a_search_for_what_no_title_has_finds_nothing(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        await app.create_session(title="a\0b")
        assert await app.get("/session", params={"search": "\0"}) == []
        assert len(await app.get("/session", params={"search": "A\0B"})) == 1
        assert len(await app.get("/session", params={"search": ""})) == 1


async def test_a_project_has_a_largest_size(tmp_path: Path) -> None:
    async with running_app(tmp_path, max_project_bytes=500_000) as app:
        session, small = (await app.create_session(title="T"))["id"], (await app.create_session(title="T"))["id"]
        for _ in range(5):
            await app.prompt(session, "x" * 100_000, noReply=True)
        for refused in (
            await app.prompt(small, "one more", expect=507),
            await app.post(f"/session/{session}/fork", {}, expect=507),
        ):
            assert refused["name"] == "StorageQuotaError" and "OPENSESSION_MAX_PROJECT_BYTES" in refused["data"]["message"]
        assert await app.messages(small) == [] and len(await app.get("/session")) == 2
        await app.call("DELETE", f"/session/{session}")
        assert texts(await app.prompt(small, "now there is room"))


async def test_snapshots_have_a_largest_size(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Turns go on without them, and say so in the log."""
    workspace = make_workspace(tmp_path / "workspace")
    (workspace / "large").write_bytes(os.urandom(300_000))
    async with talking(tmp_path, title="T") as (app, session):
        await play(app, session, write("b.txt", "b"))
        assert [part["files"] for message in await app.messages(session) for part in parts(message, "patch")]
    async with talking(tmp_path, max_snapshot_bytes=200_000, title="T") as (app, session):
        await play(app, session, write("b.txt", "b"))
        assert [part for message in await app.messages(session) for part in parts(message, "patch")] == []
    assert "OPENSESSION_MAX_SNAPSHOT_BYTES" in caplog.text
