"""Prompts that meet: in a busy session, many at once, the same one again; queues and deadlines as clients wish them."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from alive import alive
from refused_commits import refused_commits
from running_app import RunningApp, running_app
from turns import assert_finished, bash, requests, say, statuses, talking, texts, tools, until

from app.providers.base import TextBlock
from app.turn.intake.prompt_queue import Waiting


async def test_a_prompt_to_a_busy_session_joins_its_turn(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with talking(tmp_path, turns=[[bash("true"), {"wait": gate}], [say("Both.")]]) as (app, session):
        first = asyncio.create_task(app.prompt(session, "one"))
        await until(lambda: requests(app))
        second = asyncio.create_task(app.prompt(session, "two"))
        await until_stored(app, session, 2)
        gate.set()
        one, two = await asyncio.gather(first, second)
        messages = await app.messages(session)
        _, request = requests(app)
    assert one == two and texts(one) == ["Both."]
    users = [message["info"]["id"] for message in messages if message["info"]["role"] == "user"]
    assert one["info"]["parentID"] == users[1]
    told = request.messages[-1].content[-1] if request.messages[-1].role == "user" else request.messages[1].content[0]
    assert isinstance(told, TextBlock) and "two" in told.text and told.text.startswith("<system-reminder>")
    assert_finished(messages)


async def until_stored(app: RunningApp, session_id: str, prompts: int) -> None:
    async with asyncio.timeout(60):
        while sum(message["info"]["role"] == "user" for message in await app.messages(session_id)) < prompts:
            await asyncio.sleep(0.005)


async def test_a_prompt_that_comes_at_the_end_of_the_answer_is_answered_too(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with talking(tmp_path, turns=[[say("One."), {"wait": gate}], [say("Two.")]]) as (app, session):
        first = asyncio.create_task(app.prompt(session, "one"))
        await until(lambda: requests(app))
        second = asyncio.create_task(app.prompt(session, "two"))
        await until_stored(app, session, 2)
        gate.set()
        await asyncio.gather(first, second)
        assert texts(await second) == ["Two."]
        answers = [texts(message) for message in await app.messages(session) if message["info"]["role"] == "assistant"]
    assert answers == [["One."], ["Two."]]


async def test_fifty_prompts_at_once_are_all_stored_and_answered(tmp_path: Path) -> None:
    async with talking(tmp_path) as (app, session):
        answers = await asyncio.gather(*(app.prompt(session, f"prompt {n}") for n in range(50)))
        messages = await app.messages(session)
        sent = " ".join(block.text for turn in requests(app)[-1].messages for block in turn.content)  # type: ignore[union-attr]
        assert await statuses(app) == {}
    users = [message for message in messages if message["info"]["role"] == "user"]
    assert sorted(text for user in users for text in texts(user)) == sorted(f"prompt {n}" for n in range(50))
    assert all(answer["info"]["role"] == "assistant" and "error" not in answer["info"] for answer in answers)
    newest_user = max(place for place, message in enumerate(messages) if message["info"]["role"] == "user")
    newest = messages[-1]["info"]
    assert newest["role"] == "assistant" and newest["parentID"] == messages[newest_user]["info"]["id"]
    assert all(f"prompt {n}" in sent for n in range(50))
    assert_finished(messages)


async def test_the_same_message_sent_twenty_times_is_one_message_and_one_answer(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[say("Once.")], [say("Twice?")]]) as (app, session):
        sent = [app.prompt(session, "Hi", messageID="msg_mine") for _ in range(20)]
        answers = await asyncio.gather(*sent)
        assert len(requests(app)) == 1
        messages = await app.messages(session)
        later = await app.prompt(session, "Hi", messageID="msg_mine")
        assert len(requests(app)) == 1
    assert len(messages) == 2 and messages[0]["info"]["id"] == "msg_mine" and texts(messages[0]) == ["Hi"]
    assert all(answer == messages[1] for answer in [*answers, later])


async def test_the_same_failing_message_sent_at_once_is_asked_once(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[{"status": 400, "message": "no"}], [say("Not asked for")]]) as (app, session):
        answers = await asyncio.gather(*(app.prompt(session, "Hi", messageID="msg_mine") for _ in range(10)))
        assert len(requests(app)) == 1
    assert {answer["info"]["error"]["name"] for answer in answers} == {"APIError"}


async def test_a_known_message_with_other_content_is_a_conflict(tmp_path: Path) -> None:
    async with talking(tmp_path) as (app, session):
        await app.prompt(session, "Hi", messageID="msg_mine")
        refused = await app.prompt(session, "Something else", messageID="msg_mine", expect=409)
        assert refused["name"] == "ConflictError"
        answer = (await app.messages(session))[1]
        await app.prompt(session, "Hi", messageID=answer["info"]["id"], expect=409)
        assert len(await app.messages(session)) == 2


async def test_a_message_sent_again_after_a_restart_is_known(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[say("Once.")]]) as (app, session):
        answer = await app.prompt(session, "Hi", messageID="msg_mine")
    async with running_app(tmp_path) as app:
        assert await app.prompt(session, "Hi", messageID="msg_mine") == answer
        assert requests(app) == []


async def test_the_same_id_in_two_sessions_is_two_messages(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        one, two = await app.create_session(), await app.create_session()
        await app.prompt(one["id"], "a", messageID="msg_mine")
        await app.prompt(two["id"], "b", messageID="msg_mine")
        assert texts((await app.messages(two["id"]))[0]) == ["b"]


async def test_a_client_that_goes_away_does_not_stop_the_turn(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with talking(tmp_path, turns=[[say("Here."), {"wait": gate}]]) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Hi"))
        await until(lambda: requests(app))
        prompt.cancel()
        await asyncio.wait({prompt})
        assert await statuses(app) == {session: {"type": "busy"}}
        gate.set()
        await until(lambda: not app.services.live.is_running(session))
        assert texts((await app.messages(session))[-1]) == ["Here."]


async def test_a_fork_of_a_busy_session_has_its_prompt_and_what_is_finished(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with talking(tmp_path, turns=[[bash("true")], [say("Half"), {"wait": gate}], [say("Forked.")]]) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "one"))
        await until(lambda: len(requests(app)) == 2)
        fork = await app.post(f"/session/{session}/fork")
        user, step = await app.messages(fork["id"])
        assert texts(user) == ["one"] and step["info"]["parentID"] == user["info"]["id"]
        assert texts(await app.prompt(fork["id"], "two")) == ["Forked."]
        gate.set()
        await prompt
    async with running_app(tmp_path) as app:
        assert await statuses(app) == {} and requests(app) == [], "nothing was left to be answered"


@asynccontextmanager
async def busy(
    tmp_path: Path, *later: list[Any]
) -> AsyncIterator[tuple[RunningApp, str, asyncio.Event, asyncio.Task[dict[str, Any]]]]:
    """A session whose first answer is held until the event is set."""
    gate = asyncio.Event()
    async with talking(tmp_path, turns=[[say("One."), {"wait": gate}], *later], title="T") as (app, session_id):
        first = asyncio.create_task(app.prompt(session_id, "one"))
        await until(lambda: requests(app))
        yield app, session_id, gate, first
        gate.set()


def order(messages: list[dict[str, Any]]) -> list[str]:
    return [text for message in messages for text in texts(message)]


async def test_a_prompt_that_rejects_is_answered_with_409_while_the_session_is_busy(tmp_path: Path) -> None:
    async with busy(tmp_path, [say("Two.")]) as (app, session_id, gate, first):
        refused = await app.prompt(session_id, "two", whenBusy="reject", expect=409)
        assert refused["name"] == "SessionBusyError"
        gate.set()
        await first
        assert texts(await app.prompt(session_id, "two", whenBusy="reject")) == ["Two."]
        assert order(await app.messages(session_id)) == ["one", "One.", "two", "Two."]


async def test_a_prompt_that_interrupts_aborts_the_turn_and_is_answered_with_both_in_the_history(tmp_path: Path) -> None:
    async with busy(tmp_path, [say("Two.")]) as (app, session_id, _, first):
        assert texts(await app.prompt(session_id, "two", whenBusy="interrupt")) == ["Two."]
        assert (await first)["info"]["error"]["name"] == "MessageAbortedError"
        messages = await app.messages(session_id)
        assert [message["info"]["role"] for message in messages] == ["user", "assistant", "user", "assistant"]
        told = str(requests(app)[-1].messages)
        assert "one" in told and "two" in told
        assert_finished(messages)


async def test_a_prompt_that_interrupts_does_not_interrupt_its_own_answer_when_it_is_sent_again(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with busy(tmp_path, [say("Two."), {"wait": gate}]) as (app, session_id, _, first):
        wanted = {"whenBusy": "interrupt", "messageID": "msg_b"}
        both = [asyncio.create_task(app.prompt(session_id, "two", **wanted)) for _ in range(2)]
        await first
        await until(lambda: len(requests(app)) == 2)
        await app.prompt_async(session_id, "two", **wanted)
        await app.prompt_async(session_id, "three", whenBusy="interrupt", messageID="msg_b", expect=409)
        later = asyncio.create_task(app.prompt(session_id, "two", **wanted))
        gate.set()
        answers = [*await asyncio.gather(*both), await later, await app.prompt(session_id, "two", **wanted)]
        assert [(texts(answer), answer["info"].get("error")) for answer in answers] == [(["Two."], None)] * 4
        assert order(await app.messages(session_id)) == ["one", "One.", "two", "Two."]


async def test_a_prompt_that_interrupts_and_is_sent_again_at_once_is_answered_once(tmp_path: Path) -> None:
    """Both find it new while the files that it names are read."""
    async with talking(tmp_path, turns=[[say("Two.", delay=0.05)]], title="T") as (app, session_id):
        body = [
            {"type": "text", "text": "two"},
            {"type": "file", "mime": "text/plain", "url": (app.directory / "a.txt").as_uri()},
        ]
        sent = [app.prompt(session_id, "", parts=body, whenBusy="interrupt", messageID="msg_b") for _ in range(4)]
        answers = await asyncio.gather(*sent)
        assert [(texts(answer), answer["info"].get("error")) for answer in answers] == [(["Two."], None)] * 4


async def test_a_queued_prompt_gets_a_turn_of_its_own(tmp_path: Path) -> None:
    async with busy(tmp_path, [say("Two.")], [say("Three.")]) as (app, session_id, gate, first):
        second = asyncio.create_task(app.prompt(session_id, "two", whenBusy="queue"))
        await queue_of(app, session_id, 1)
        await app.prompt_async(session_id, "three", whenBusy="queue", messageID="msg_three")
        waiting = await queue_of(app, session_id, 2)
        assert [queued["prompt"]["parts"][0]["text"] for queued in waiting] == ["two", "three"]
        assert order(await app.messages(session_id))[0] == "one" and len(await app.messages(session_id)) == 2
        gate.set()
        assert texts(await first) == ["One."] and texts(await second) == ["Two."]
        await until_idle(app, session_id)
        messages = await app.messages(session_id)
        assert order(messages) == ["one", "One.", "two", "Two.", "three", "Three."]
        assert messages[4]["info"]["id"] == "msg_three"
        assert "two" not in str(requests(app)[0].messages)
        assert await app.get(f"/session/{session_id}/queue") == []
        assert_finished(messages)


async def queue_of(app: RunningApp, session_id: str, length: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(60):
        while len(found := await app.get(f"/session/{session_id}/queue")) != length:
            await asyncio.sleep(0.01)
    return list(found)


async def until_idle(app: RunningApp, session_id: str) -> None:
    async with asyncio.timeout(60):
        while await app.get(f"/session/{session_id}/queue") or await statuses(app):
            await asyncio.sleep(0.01)


async def test_a_queued_prompt_of_an_idle_session_begins_at_once(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[say("One.")]], title="T") as (app, session_id):
        assert texts(await app.prompt(session_id, "one", whenBusy="queue")) == ["One."]


async def test_a_waiting_prompt_is_removed_and_its_client_is_told(tmp_path: Path) -> None:
    async with busy(tmp_path) as (app, session_id, gate, first), app.events() as events:
        second = asyncio.create_task(app.prompt(session_id, "two", whenBusy="queue"))
        (waiting,) = await queue_of(app, session_id, 1)
        assert await app.call("DELETE", f"/session/{session_id}/queue/{waiting['id']}") is True
        assert (await second)["name"] == "NoAnswerError"
        again = await app.call("DELETE", f"/session/{session_id}/queue/{waiting['id']}", expect=404)
        assert "waits in the queue" in again["data"]["message"]
        gate.set()
        await first
        await until_idle(app, session_id)
        assert order(await app.messages(session_id)) == ["one", "One."]
        await events.until("prompt.dequeued")


async def test_a_queued_message_is_queued_once_and_says_one_thing(tmp_path: Path) -> None:
    async with busy(tmp_path, [say("Two.")]) as (app, session_id, gate, _):
        both = [asyncio.create_task(app.prompt(session_id, "two", whenBusy="queue", messageID="msg_b")) for _ in range(2)]
        await queue_of(app, session_id, 1)
        await app.prompt(session_id, "else", whenBusy="queue", messageID="msg_b", expect=409)
        gate.set()
        assert [texts(answer) for answer in await asyncio.gather(*both)] == [["Two."], ["Two."]]
        await until_idle(app, session_id)
        assert order(await app.messages(session_id)) == ["one", "One.", "two", "Two."]


@pytest.mark.parametrize("again", ["two", "something else"])
async def test_a_queued_message_that_joins_after_all_leaves_the_queue(tmp_path: Path, again: str) -> None:
    """What is stored under its id stays, also where it says something else."""
    async with busy(tmp_path, [say("Both.")], [say("Too many.")]) as (app, session_id, gate, first):
        await app.prompt_async(session_id, "two", whenBusy="queue", messageID="msg_b")
        await queue_of(app, session_id, 1)
        joining = asyncio.create_task(app.prompt(session_id, again, messageID="msg_b"))
        async with asyncio.timeout(60):
            while len(await app.messages(session_id)) < 3:
                await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(first, joining)
        await until_idle(app, session_id)
        found = await app.messages(session_id)
    assert [texts(message) for message in found if message["info"]["role"] == "user"] == [["one"], [again]]
    assert "Too many." not in order(found)
    assert_finished(found)


async def test_a_queued_prompt_survives_a_restart(tmp_path: Path) -> None:
    async with busy(tmp_path) as (app, session_id, _, first):
        await app.prompt_async(session_id, "two", whenBusy="queue")
        await queue_of(app, session_id, 1)
        first.cancel()
    async with running_app(tmp_path, turns=[[say("Two.")]]) as app:
        await until_idle(app, session_id)
        messages = await app.messages(session_id)
    assert order(messages)[-2:] == ["two", "Two."]
    assert_finished(messages)


async def test_a_queued_prompt_whose_directory_is_gone_is_stored_with_the_error(tmp_path: Path) -> None:
    async with busy(tmp_path) as (app, session_id, _, first):
        elsewhere = tmp_path / "workspace" / "elsewhere"
        elsewhere.mkdir()
        where = {"directory": str(elsewhere)}
        body = {"parts": [{"type": "text", "text": "two"}], "whenBusy": "queue"}
        await app.call("POST", f"/session/{session_id}/prompt_async", body, expect=204, params=where)
        await queue_of(app, session_id, 1)
        first.cancel()
    elsewhere.rmdir()
    async with running_app(tmp_path) as app:
        await until_idle(app, session_id)
        *_, prompt, answer = await app.messages(session_id)
    assert texts(prompt) == ["two"] and "elsewhere" in answer["info"]["error"]["data"]["message"]


async def test_a_session_that_is_deleted_takes_its_queue_along(tmp_path: Path) -> None:
    async with busy(tmp_path) as (app, session_id, _, first):
        second = asyncio.create_task(app.prompt(session_id, "two", whenBusy="queue"))
        await queue_of(app, session_id, 1)
        await app.call("DELETE", f"/session/{session_id}")
        assert (await second)["name"] in ("NoAnswerError", "NotFoundError")
        await asyncio.wait({first})


@pytest.mark.parametrize(("field", "value"), [("whenBusy", "later"), ("deadlineSeconds", 0), ("deadlineSeconds", 10**9)])
async def test_what_is_wrong_is_named(tmp_path: Path, field: str, value: Any) -> None:
    async with talking(tmp_path, title="T") as (app, session_id):
        refused = await app.prompt(session_id, "one", expect=400, **{field: value})
        assert field in str(refused)
        assert await app.messages(session_id) == []


async def test_a_prompt_that_wants_no_answer_does_not_wait_for_a_turn(tmp_path: Path) -> None:
    async with talking(tmp_path, title="T") as (app, session_id):
        assert "whenBusy" in str(await app.prompt(session_id, "one", noReply=True, whenBusy="queue", expect=400))


async def test_a_prompt_whose_queueing_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    async with busy(tmp_path) as (app, session_id, _, _first), app.events() as events:
        before = alive(Waiting)
        with refused_commits() as commits:
            commits.refused_text = "never queued"
            for _ in range(3):
                await app.prompt(session_id, "never queued", whenBusy="queue", expect=503)
        assert alive(Waiting) == before
        assert await app.get(f"/session/{session_id}/queue") == [] and "prompt.queued" not in events.types


@pytest.mark.parametrize("column", ["input", "message"])
async def test_a_damaged_row_of_the_queue_holds_up_none_behind_it(tmp_path: Path, column: str) -> None:
    async with busy(tmp_path, [say("Three.")]) as (app, session_id, gate, first):
        second = asyncio.create_task(app.prompt(session_id, "two", whenBusy="queue"))
        (damaged,) = await queue_of(app, session_id, 1)
        third = asyncio.create_task(app.prompt(session_id, "three", whenBusy="queue"))
        _, behind = await queue_of(app, session_id, 2)
        with sqlite3.connect(app.data_dir / "opensession.db") as database:
            database.execute(f"UPDATE queued_prompt SET {column} = ? WHERE id = ?", ('{"damaged"', damaged["id"]))
        assert [queued["id"] for queued in await app.get(f"/session/{session_id}/queue")] == [behind["id"]]
        gate.set()
        await first
        assert (await second)["name"] == "NoAnswerError"
        assert texts(await third) == ["Three."]
        await until_idle(app, session_id)
        assert order(await app.messages(session_id)) == ["one", "One.", "three", "Three."]


# Deadlines.


async def test_a_turn_ends_at_its_deadline_with_its_tools_ended_and_the_error_stored(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[say("I run it."), bash("sleep 60")], [say("Next.")]], title="T") as (app, session_id):
        answer = await app.prompt(session_id, "one", deadlineSeconds=1)
        error = answer["info"]["error"]
        assert error["name"] == "MessageAbortedError" and "deadline" in error["data"]["message"]
        (run,) = tools(answer)
        assert run["state"]["status"] == "error"
        assert (await app.messages(session_id))[0]["info"]["deadline"] > answer["info"]["time"]["created"]
        assert texts(await app.prompt(session_id, "two")) == ["Next."]
        assert_finished(await app.messages(session_id))


async def test_the_deadline_of_a_prompt_that_joins_ends_the_turn(tmp_path: Path) -> None:
    async with busy(tmp_path) as (app, session_id, _, first):
        second = await app.prompt(session_id, "two", deadlineSeconds=0.2)
        assert "deadline" in second["info"]["error"]["data"]["message"]
        await first


async def test_a_queued_prompt_whose_deadline_has_passed_is_not_sent_to_the_model(tmp_path: Path) -> None:
    async with busy(tmp_path, [say("Two.")]) as (app, session_id, gate, first):
        second = asyncio.create_task(app.prompt(session_id, "two", whenBusy="queue", deadlineSeconds=0.1))
        await queue_of(app, session_id, 1)
        await asyncio.sleep(0.15)
        gate.set()
        await first
        assert "deadline" in (await second)["info"]["error"]["data"]["message"]
        assert len(requests(app)) == 1
