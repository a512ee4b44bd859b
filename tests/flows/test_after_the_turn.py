"""What a turn leaves to be done: titles and slow diffs hold no answer up, and come late without harm."""

import asyncio
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp, make_workspace, running_app
from sse_reader import Received
from turns import bash, infos, play, requests, say, statuses, talking, texts, title_requests, titled, until

from app.providers.base import ModelRequest, TextBlock
from app.providers.scripted import TITLE, Fail, Say, ScriptedProvider, ScriptedTurn, Wait

GIT = shutil.which("git")


class SlowTitles(ScriptedProvider):
    """Every title waits for `gate`."""

    def __init__(self, *turns: Any) -> None:
        super().__init__(turns, title=self._slow)
        self.gate = asyncio.Event()

    def _slow(self, request: ModelRequest) -> ScriptedTurn:
        return (Wait(self.gate), Say(TITLE))


async def untitled_answer(app: RunningApp, session: str) -> dict[str, Any]:
    """To a first prompt, whose title is requested and does not come."""
    answer = await app.prompt(session, "Hi")
    await until(lambda: title_requests(app), "the title's request")
    return answer


def names(event: Received) -> bool:
    return event.type == "session.updated" and event.properties["info"]["title"] == TITLE


async def test_an_answer_does_not_wait_for_its_title(tmp_path: Path) -> None:
    provider = SlowTitles([say("One.")], [say("Two.")])
    async with talking(tmp_path, provider=provider) as (app, session):
        async with app.events() as events:
            async with asyncio.timeout(60):
                assert texts(await untitled_answer(app, session)) == ["One."]
            await events.until("session.idle")
            assert await statuses(app) == {}
            assert texts(await app.prompt(session, "More")) == ["Two."]
            provider.gate.set()
            await events.until(names)
        first = (await app.messages(session))[0]
        assert (await app.get(f"/session/{session}"))["title"] == TITLE
    assert first["info"]["summary"]["title"] == TITLE
    assert len(title_requests(app)) == 1


async def test_a_title_is_requested_when_the_prompt_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.turn.titles.PAUSE_SECONDS", 60)
    at_work: list[list[str]] = []

    def title(request: ModelRequest) -> ScriptedTurn:
        at_work.append(list(app.services.live.at_work))
        return (Say(TITLE),)

    async with talking(tmp_path, provider=ScriptedProvider([[say("One.")]], title=title)) as (app, session):
        await untitled_answer(app, session)
    assert at_work == [[]]


async def test_a_fork_of_a_session_without_a_title_gets_one_with_its_first_prompt(tmp_path: Path) -> None:
    provider = SlowTitles([say("One.")], [say("Two.")])
    async with talking(tmp_path, provider=provider) as (app, session), app.events() as events:
        await untitled_answer(app, session)
        fork = (await app.post(f"/session/{session}/fork"))["id"]
        provider.gate.set()
        await events.until(names)
        await app.prompt(fork, "More")
        await events.until(lambda event: names(event) and event.properties["info"]["id"] == fork)
        assert (await app.get(f"/session/{fork}"))["title"] == TITLE


async def test_a_title_overwrites_no_name_and_none_is_requested_for_a_session_that_has_one(tmp_path: Path) -> None:
    provider, gate = SlowTitles([say("One.")]), asyncio.Event()
    async with talking(tmp_path, provider=provider) as (app, session), app.events() as events:
        await untitled_answer(app, session)
        await app.call("PATCH", f"/session/{session}", {"title": "Mine"})
        provider.gate.set()
        await events.until(lambda event: event.properties.get("info", {}).get("summary", {}).get("title") == TITLE)
        assert (await app.get(f"/session/{session}"))["title"] == "Mine"

        other, asked = (await app.create_session())["id"], len(title_requests(app))
        provider.add([say("Well"), {"wait": gate}])
        prompt = asyncio.create_task(app.prompt(other, "Hi"))
        await events.until(lambda event: bool(event.properties.get("delta")) and event.properties["sessionID"] == other)
        await app.call("PATCH", f"/session/{other}", {"title": "Mine"})
        gate.set()
        await prompt
        assert len(title_requests(app)) == asked


async def test_a_late_title_of_a_deleted_prompt_is_dropped_and_the_next_prompt_gives_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "app.sessions")
    async with talking(tmp_path, provider=(provider := SlowTitles())) as (app, session):
        answer = await untitled_answer(app, session)
        await app.call("DELETE", f"/session/{session}/message/{answer['info']['parentID']}")
        provider.gate.set()
        await until(lambda: "is dropped" in caplog.text, "the title is dropped")
        assert [message["info"]["role"] for message in await app.messages(session)] == ["assistant"]
        await app.prompt(session, "Again")
        assert (await titled(app, session))["title"] == TITLE
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert len(title_requests(app)) == 2


async def test_a_session_that_is_deleted_before_its_title_comes_stays_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    provider = SlowTitles()
    async with running_app(tmp_path, provider=provider) as app:
        session, other = [(await app.create_session())["id"] for _ in range(2)]
        await untitled_answer(app, session)
        await app.call("DELETE", f"/session/{session}")
        provider.gate.set()
        await app.prompt(other, "Hi")
        await titled(app, other)
        assert [found["id"] for found in await app.get("/session")] == [other]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_an_abort_of_a_later_turn_leaves_the_title_alone(tmp_path: Path) -> None:
    provider = SlowTitles([say("One.")], [say("Half"), {"wait": asyncio.Event()}])
    async with talking(tmp_path, provider=provider) as (app, session):
        await untitled_answer(app, session)
        prompt = asyncio.create_task(app.prompt(session, "More"))
        await until(lambda: len(requests(app)) == 2)
        await app.post(f"/session/{session}/abort")
        assert (await prompt)["info"]["error"]["name"] == "MessageAbortedError"
        provider.gate.set()
        await titled(app, session)
    assert len(title_requests(app)) == 1


async def test_a_title_that_a_restart_lost_is_requested_again_with_the_next_prompt(tmp_path: Path) -> None:
    async with talking(tmp_path, provider=SlowTitles()) as (app, session):
        await untitled_answer(app, session)
    async with running_app(tmp_path) as app:
        await app.prompt(session, "More")
        await titled(app, session)
        (request,) = title_requests(app)
        summaries = [info.get("summary") for info in infos(await app.messages(session))]
    assert request.messages[-1].content == (TextBlock("Hi"),), "it is made from the first prompt"
    assert summaries == [{"title": TITLE, "diffs": []}, None]


async def test_a_title_that_failed_is_not_requested_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    provider = ScriptedProvider(title=lambda request: (Fail(400),))
    async with talking(tmp_path, provider=provider) as (app, session):
        await app.prompt(session, "Hi")
        await until(lambda: "no title for" in caplog.text, "the failure is logged")
        asked = len(title_requests(app))
        for text in ("More", "And more"):
            await app.prompt(session, text)
    assert len(title_requests(app)) == asked
    assert [record.exc_info for record in caplog.records if record.exc_info] == []


async def test_a_small_model_that_is_not_there_is_named_in_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (make_workspace(tmp_path / "workspace") / "opencode.json").write_text('{"small_model": "acme/none"}')
    async with running_app(tmp_path) as app:
        await app.prompt((await app.create_session())["id"], "Hi")
        await until(lambda: "There is no model acme/none" in caplog.text, "the model is named")
    assert [record.exc_info for record in caplog.records if record.exc_info] == []


@pytest.fixture
def hanging(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """While this file exists no diff of two trees that shows contents is computed."""
    flag, wrapper = tmp_path / "bin" / "hang", tmp_path / "bin" / "git"
    wrapper.parent.mkdir()
    wait = f"while [ -e {flag} ]; do sleep 0.02; done"
    wrapper.write_text(f'#!/bin/sh\ncase "$*" in *diff-tree*--numstat*) {wait};; esac\nexec {GIT} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    return flag


def changed_by_prompt(event: Received) -> list[str]:
    return [diff["file"] for diff in event.properties.get("info", {}).get("summary", {}).get("diffs", [])]


async def changed(app: RunningApp, session: str) -> list[str]:
    return [diff["file"] for diff in await app.get(f"/session/{session}/diff")]


async def test_a_slow_diff_holds_the_answer_up_for_a_second_at_most_and_is_stored_later(tmp_path: Path, hanging: Path) -> None:
    turns = [[bash("echo one > one.txt")], [say("One.")], [bash("echo two > two.txt")], [say("Two.")]]
    async with talking(tmp_path, turns=turns, title="T") as (app, session):
        hanging.touch()
        for text in ("One.", "Two."):
            began = time.monotonic()
            assert texts(await app.prompt(session, "Go")) == [text]
            assert time.monotonic() - began < 20 and await changed(app, session) == []
        async with app.events() as events:
            hanging.unlink()
            await events.until(lambda event: changed_by_prompt(event) == ["two.txt"])
        assert await changed(app, session) == ["one.txt", "two.txt"]
        prompts = infos(await app.messages(session))
    assert [[diff["file"] for diff in prompt["summary"]["diffs"]] for prompt in prompts] == [["one.txt"], ["two.txt"]]


async def test_a_diff_of_an_answer_that_is_deleted_is_gone_after_the_next_turn(tmp_path: Path) -> None:
    async with talking(tmp_path, title="T") as (app, session):
        await play(app, session, bash("echo b > b.txt"))
        assert await changed(app, session) == ["b.txt"]
        wrote = (await app.messages(session))[1]["info"]["id"]
        await app.call("DELETE", f"/session/{session}/message/{wrote}")
        await app.prompt(session, "Go on")
        assert await changed(app, session) == []


async def test_diffs_that_a_restart_lost_are_made_in_the_next_turn(tmp_path: Path, hanging: Path) -> None:
    async with talking(tmp_path, turns=[[bash("echo one > one.txt")], [say("One.")]], title="T") as (app, session):
        hanging.touch()
        await app.prompt(session, "Go")
    hanging.unlink()
    async with running_app(tmp_path) as app:
        assert await changed(app, session) == []
        await app.prompt(session, "What did you do?")
        assert await changed(app, session) == ["one.txt"]
        first = (await app.messages(session))[0]["info"]
    assert [diff["file"] for diff in first["summary"]["diffs"]] == ["one.txt"]
