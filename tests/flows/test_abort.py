"""Aborts: wherever a turn is, the session is idle within two seconds, its record finished, and ready for the next prompt."""

import asyncio
import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import turns
from processes import running_in
from refused_commits import refused_commits
from running_app import RunningApp, running_app, text_part
from turns import assert_finished, bash, requests, say, statuses, talking, task, texts, until, until_stored

from app.providers.scripted import ScriptedProvider, Wait
from app.schema.message import PromptInput
from app.turn import step
from app.turn.turn import Turn

STUBBORN = "trap '' TERM; echo started; while :; do sleep 0.05; done"


def for_ever() -> dict[str, Any]:
    return {"wait": asyncio.Event()}


def shown_output(events: Any) -> Any:
    return events.until(
        lambda event: (
            event.type == "message.part.updated"
            and "started" in (event.properties["part"].get("state", {}).get("metadata") or {}).get("output", "")
        )
    )


async def aborted(app: RunningApp, session: str, prompt: asyncio.Task[dict[str, Any]]) -> dict[str, Any]:
    """Abort, and check what must hold after every abort. Returns the answer of the prompt."""
    began = time.monotonic()
    assert await app.post(f"/session/{session}/abort") is True
    assert time.monotonic() - began < 20
    assert await statuses(app) == {} and await app.get("/permission") == [] and await app.get("/question") == []
    answer = await asyncio.wait_for(prompt, 20)
    messages = await app.messages(session)
    assert_finished(messages)
    assert answer["info"]["error"] == {"name": "MessageAbortedError", "data": {"message": "Aborted"}}
    assert messages[-1] == answer
    return answer


async def test_an_abort_in_the_middle_of_a_text_keeps_the_text(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[say("Half an ans", chunks=1), for_ever()], [say("Next.")]]) as (app, session):
        async with app.events() as events:
            prompt = asyncio.create_task(app.prompt(session, "Hi"))
            await events.until(lambda event: bool(event.properties.get("delta")))
            answer = await aborted(app, session, prompt)
            await events.until("session.idle")
            kinds = events.types
            assert kinds.index("session.error") < kinds.index("session.idle")
            assert events.seen[-1].type == "session.idle"
        assert texts(answer) == ["Half an ans"] and "finish" not in answer["info"]
        assert turns.parts(answer, "text")[0]["time"]["end"] > 0
        assert texts(await app.prompt(session, "Go on")) == ["Next."]
        assert [turn.role for turn in requests(app)[-1].messages] == ["user", "assistant", "user"]


async def test_the_answer_to_an_aborted_prompt_is_its_own_though_the_next_is_answered_before_it_is_read(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[say("Half an ans", chunks=1), for_ever()], [say("Next.")]]) as (app, session):
        services, wanted = app.services, PromptInput.model_validate({"parts": [text_part("Hi")]})
        instance = await services.instances.get(str(app.directory))
        accepted = await services.prompts.accept(instance, await services.store.session_to_prompt(session), wanted)
        await until(lambda: len(requests(app)) == 1)
        await app.post(f"/session/{session}/abort")
        await app.prompt(session, "Go on")
        answer = json.loads(await services.prompts.answer(session, accepted))
        assert answer["info"]["error"]["name"] == "MessageAbortedError"


async def test_an_abort_in_a_command_ends_its_whole_group(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[bash(f"({STUBBORN}) & {STUBBORN}")], [say("Next.")]]) as (app, session):
        async with app.events() as events:
            prompt = asyncio.create_task(app.prompt(session, "Run"))
            await shown_output(events)
            assert running_in(app.directory)
            answer = await aborted(app, session, prompt)
        await until(lambda: not running_in(app.directory), "the end of the command's processes")
        (tool,) = turns.tools(answer)
        assert tool["state"]["error"] == "Tool execution aborted" and "started" in tool["state"]["metadata"]["output"]
        assert texts(await app.prompt(session, "Again")) == ["Next."]
        result = requests(app)[-1].messages[2].content[0]
        assert result.text == "Tool execution aborted" and result.is_error


async def test_an_abort_in_the_wait_for_another_try(tmp_path: Path) -> None:
    busy = {"status": 429, "headers": {"retry-after": "60"}, "message": "slow down"}
    async with talking(tmp_path, turns=[[busy], [say("Next.")]]) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Hi"))

        async def waits() -> bool:
            return bool((await statuses(app)).get(session, {}).get("type") == "retry")

        await until(waits, "the wait for another try")
        await aborted(app, session, prompt)
        assert texts(await app.prompt(session, "Again")) == ["Next."]


async def test_an_abort_ends_subagents_too(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[task("Sleep")], [bash(STUBBORN)], [say("Next.")]]) as (app, session):
        async with app.events() as events:
            prompt = asyncio.create_task(app.prompt(session, "Delegate"))
            await shown_output(events)
            answer = await aborted(app, session, prompt)
        (child,) = await app.get(f"/session/{session}/children")
        childs = await app.messages(child["id"])
        assert_finished(childs)
        assert childs[-1]["info"]["error"]["name"] == "MessageAbortedError"
        assert turns.tools(answer)[0]["state"]["metadata"]["sessionId"] == child["id"]
        await until(lambda: not running_in(app.directory), "the end of the command's processes")
        assert texts(await app.prompt(session, "Again")) == ["Next."]


async def test_aborts_at_once_are_one(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[bash(STUBBORN)]]) as (app, session), app.events() as events:
        prompt = asyncio.create_task(app.prompt(session, "Run"))
        await shown_output(events)
        others = [asyncio.create_task(app.post(f"/session/{session}/abort")) for _ in range(5)]
        await aborted(app, session, prompt)
        await asyncio.gather(*others)
        await events.until("session.idle")
        assert events.types.count("session.idle") == 1 and events.types.count("session.error") == 1


async def test_before_the_model_says_anything_prompts_that_wait_for_the_turn_are_aborted_with_it(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[for_ever()], [say("Next.")]]) as (app, session):
        first = asyncio.create_task(app.prompt(session, "one"))
        await until(lambda: requests(app))
        second = asyncio.create_task(app.prompt(session, "two"))
        await until_stored(app, session, 3)
        answer = await aborted(app, session, second)
        await first
        assert answer["info"]["parentID"] == turns.infos(await app.messages(session))[1]["id"]
        assert texts(await app.prompt(session, "three")) == ["Next."]


async def test_an_abort_finishes_an_answer_that_is_still_being_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its step has begun."""
    async with talking(tmp_path, turns=[[say("Next.")]]) as (app, session):
        begun = asyncio.Event()

        async def wait(*_: object) -> dict[str, Any]:
            commits.when = lambda: time.sleep(0.5)
            begun.set()
            await asyncio.Event().wait()
            return {}

        with refused_commits() as commits, monkeypatch.context() as patched:
            patched.setattr(Turn, "_tools", wait)
            prompt = asyncio.create_task(app.prompt(session, "Hi"))
            await begun.wait()
            await aborted(app, session, prompt)
        assert len(await app.messages(session)) == 2
        assert texts(await app.prompt(session, "Go on")) == ["Next."]


async def test_an_abort_does_not_wait_for_the_title(tmp_path: Path) -> None:
    never = asyncio.Event()
    provider = ScriptedProvider([[say("Half"), for_ever()]], title=lambda request: (Wait(never),))
    async with talking(tmp_path, provider=provider) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Hi"))
        await until(lambda: turns.title_requests(app), "the title's request")
        await aborted(app, session, prompt)


async def test_a_deleted_session_stays_deleted(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[bash(STUBBORN)]]) as (app, session):
        async with app.events() as events:
            prompt = asyncio.create_task(app.prompt(session, "Run"))
            await shown_output(events)
            assert await app.call("DELETE", f"/session/{session}") is True
            await events.until("session.deleted")
            await asyncio.wait({prompt})
        await app.call("GET", f"/session/{session}", expect=404)
        assert await app.get("/session") == [] and not running_in(app.directory)


async def test_an_abort_at_any_moment_of_a_request_s_beginning_leaves_the_session_free(tmp_path: Path) -> None:
    """Each request acquires the session's lease in a transaction, and is cancelled somewhere before, in or behind it."""
    async with running_app(tmp_path) as app:
        bodies = {"shell": {"agent": "build", "command": "sleep 20"}, "revert": {"messageID": "msg_none"}}
        for route, body in bodies.items():
            session = (await app.create_session())["id"]
            for passes in range(0, 40, 2):
                asking = asyncio.create_task(app.client.post(f"/session/{session}/{route}", json=body))
                for _ in range(passes):
                    await asyncio.sleep(0)
                await app.post(f"/session/{session}/abort")
                asking.cancel()
                await app.post(f"/session/{session}/abort")
                while not asking.done():  # what begins behind an abort is not ended by that
                    await app.post(f"/session/{session}/abort")
                    await asyncio.wait({asking}, timeout=0.1)
                await until(lambda: not held_leases(app), f"the end of the lease after {passes} passes")


def held_leases(app: RunningApp) -> list[str]:
    with closing(sqlite3.connect(app.data_dir / "opensession.db")) as database:
        return [row[0] for row in database.execute("SELECT session_id FROM run_lease WHERE owner != ''")]


async def test_what_an_aborted_step_changed_is_reverted_also_where_its_last_snapshot_takes_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "LAST_SNAPSHOT_TIMEOUT_SECONDS", 0)
    async with talking(tmp_path, turns=[[bash("echo changed > a.txt; echo started; sleep 60")]]) as (app, session):
        async with app.events() as events:
            prompt = asyncio.create_task(app.prompt(session, "Run it"))
            await shown_output(events)
            answer = await aborted(app, session, prompt)
            assert turns.parts(answer, "patch") == [] and (app.directory / "a.txt").read_text() == "changed\n"
            reverted = await app.post(f"/session/{session}/revert", {"messageID": answer["info"]["parentID"]})
        assert (app.directory / "a.txt").read_text() == "hello\nworld\n" and "notReverted" not in reverted["revert"]
        assert len(turns.parts((await app.messages(session))[-1], "patch")) == 1
