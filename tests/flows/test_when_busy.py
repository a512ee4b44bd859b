"""Prompts that meet: in a busy session, many at once, the same one again; queues and deadlines as clients wish them."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from alive import alive
from refused_commits import refused_commits
from running_app import RunningApp, running_app, text_part
from turns import assert_finished, bash, infos, requests, say, states, statuses, talking, texts, until, until_done, until_stored

from app.providers.base import TextBlock
from app.record.repositories import work_rows
from app.schema.message import PromptInput
from app.turn.intake.prompt_queue import QueuedPromptWait
from app.util import clock

Answering = asyncio.Task[dict[str, Any]]


@asynccontextmanager
async def busy(
    base: Path, *later: list[Any], steps: Any = (), queued: str | None = None
) -> AsyncIterator[tuple[RunningApp, str, asyncio.Event, Answering, Answering]]:
    """A session whose first answer is held until the event is set. The tasks wait for it and for that of what is `queued`."""
    gate = asyncio.Event()
    async with talking(base, turns=[[*(steps or [say("One.")]), {"wait": gate}], *later], title="T") as (app, session):
        first = second = asyncio.create_task(app.prompt(session, "one"))
        await until(lambda: requests(app))
        if queued:
            second = asyncio.create_task(app.prompt(session, "two", whenBusy="queue", messageID=queued))
            await queue_of(app, session, 1)
        yield app, session, gate, first, second
        gate.set()


def order(messages: list[dict[str, Any]]) -> list[str]:
    return [text for message in messages for text in texts(message)]


async def queue_of(app: RunningApp, session: str, length: int) -> list[dict[str, Any]]:
    async def is_so_long() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = await app.get(f"/session/{session}/queue")
        return found if len(found) == length else []

    return list(await until(is_so_long, f"a queue of {length}"))


async def until_idle(app: RunningApp, session: str) -> None:
    """Also until the last prompt is answered: one that cannot be started leaves the queue shortly before."""

    async def is_idle() -> bool:
        is_quiet = await app.get(f"/session/{session}/queue") == [] and await statuses(app) == {}
        return is_quiet and (await app.messages(session))[-1]["info"]["role"] == "assistant"

    await until(is_idle, "the end of the queue")


async def test_a_prompt_to_a_busy_session_joins_its_turn(tmp_path: Path) -> None:
    async with busy(tmp_path, [say("Both.")], steps=[bash("true")]) as (app, session, gate, first, _):
        second = asyncio.create_task(app.prompt(session, "two"))
        await until_stored(app, session, 3)
        gate.set()
        one, two = await asyncio.gather(first, second)
        messages = await app.messages(session)
        _, request = requests(app)
    assert one == two and texts(one) == ["Both."]
    assert one["info"]["parentID"] == infos(messages)[1]["id"]
    told = request.messages[-1].content[-1] if request.messages[-1].role == "user" else request.messages[1].content[0]
    assert isinstance(told, TextBlock) and "two" in told.text and told.text.startswith("<system-reminder>")
    assert_finished(messages)


async def test_a_prompt_that_comes_at_the_end_of_the_answer_is_answered_too(tmp_path: Path) -> None:
    async with busy(tmp_path, [say("Two.")]) as (app, session, gate, first, _):
        second = asyncio.create_task(app.prompt(session, "two"))
        await until_stored(app, session, 3)
        gate.set()
        await asyncio.gather(first, second)
        assert texts(await second) == ["Two."]
        answers = [texts(message) for message in await app.messages(session) if message["info"]["role"] == "assistant"]
    assert answers == [["One."], ["Two."]]


async def test_fifty_prompts_at_once_are_all_stored_and_answered(tmp_path: Path) -> None:
    async with talking(tmp_path) as (app, session):
        answers = await asyncio.gather(*(app.prompt(session, f"prompt {n}") for n in range(50)))
        messages = await app.messages(session)
        sent = " ".join(block.text for turn in requests(app)[-1].messages for block in turn.content)
        assert await statuses(app) == {}
    users = [message for message in messages if message["info"]["role"] == "user"]
    assert sorted(order(users)) == sorted(f"prompt {n}" for n in range(50))
    assert all(answer["info"]["role"] == "assistant" and "error" not in answer["info"] for answer in answers)
    newest = messages[-1]["info"]
    assert newest["role"] == "assistant" and newest["parentID"] == users[-1]["info"]["id"]
    assert all(f"prompt {n}" in sent for n in range(50))
    assert_finished(messages)


async def test_a_message_sent_again_is_one_message_and_one_answer_also_after_a_restart(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[say("Once.")], [say("Another's.")], [say("Twice?")]]) as (app, session):
        answers = await asyncio.gather(*(app.prompt(session, "Hi", messageID="msg_mine") for _ in range(20)))
        assert len(requests(app)) == 1
        messages = await app.messages(session)
        assert len(messages) == 2 and messages[0]["info"]["id"] == "msg_mine" and texts(messages[0]) == ["Hi"]
        refused = await app.prompt(session, "Something else", messageID="msg_mine", expect=409)
        assert refused["name"] == "ConflictError", "a known message with other content"
        await app.prompt(session, "Hi", messageID=messages[1]["info"]["id"], expect=409)
        parts = [message["parts"] for message in await app.messages(session)]  # the prompt may have its title by now
        assert parts == [message["parts"] for message in messages]
        other = (await app.create_session())["id"]
        await app.prompt(other, "b", messageID="msg_mine")
        assert order(await app.messages(other)) == ["b", "Another's."], "an id is of its session alone"
    async with running_app(tmp_path) as app:
        later = await app.prompt(session, "Hi", messageID="msg_mine")
        assert requests(app) == []
    assert all(answer == messages[1] for answer in [*answers, later])


async def test_the_same_failing_message_sent_at_once_is_asked_once(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[{"status": 400, "message": "no"}], [say("Not asked for")]]) as (app, session):
        answers = await asyncio.gather(*(app.prompt(session, "Hi", messageID="msg_mine") for _ in range(10)))
        assert len(requests(app)) == 1
    assert {answer["info"]["error"]["name"] for answer in answers} == {"APIError"}


async def test_a_client_that_goes_away_does_not_stop_the_turn(tmp_path: Path) -> None:
    async with busy(tmp_path) as (app, session, gate, prompt, _):
        prompt.cancel()
        await asyncio.wait({prompt})
        assert await statuses(app) == {session: {"type": "busy"}}
        gate.set()
        await until_done(app, session)
        assert texts((await app.messages(session))[-1]) == ["One."]


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


async def test_a_prompt_that_rejects_is_answered_with_409_while_the_session_is_busy(tmp_path: Path) -> None:
    async with busy(tmp_path, [say("Two.")]) as (app, session, gate, first, _):
        assert (await app.prompt(session, "two", whenBusy="reject", expect=409))["name"] == "SessionBusyError"
        gate.set()
        await first
        assert texts(await app.prompt(session, "two", whenBusy="reject")) == ["Two."]
        assert order(await app.messages(session)) == ["one", "One.", "two", "Two."]


async def test_a_prompt_that_interrupts_aborts_the_turn_and_not_its_own_answer_when_it_is_sent_again(tmp_path: Path) -> None:
    may_end = asyncio.Event()
    async with busy(tmp_path, [say("Two."), {"wait": may_end}]) as (app, session, _, first, _):
        wanted = {"whenBusy": "interrupt", "messageID": "msg_b"}
        both = [asyncio.create_task(app.prompt(session, "two", **wanted)) for _ in range(2)]
        assert (await first)["info"]["error"]["name"] == "MessageAbortedError"
        await until(lambda: len(requests(app)) == 2)
        await app.prompt_async(session, "two", **wanted)
        await app.prompt_async(session, "three", whenBusy="interrupt", messageID="msg_b", expect=409)
        later = asyncio.create_task(app.prompt(session, "two", **wanted))
        may_end.set()
        answers = [*await asyncio.gather(*both), await later, await app.prompt(session, "two", **wanted)]
        assert [(texts(answer), answer["info"].get("error")) for answer in answers] == [(["Two."], None)] * 4
        messages, told = await app.messages(session), str(requests(app)[-1].messages)
        assert order(messages) == ["one", "One.", "two", "Two."] and "one" in told and "two" in told
        assert_finished(messages)


async def test_a_prompt_that_interrupts_and_is_sent_again_at_once_is_answered_once(tmp_path: Path) -> None:
    """Both find it new while the files that it names are read."""
    async with talking(tmp_path, turns=[[say("Two.", delay=0.05)]], title="T") as (app, session):
        body = [text_part("two"), {"type": "file", "mime": "text/plain", "url": (app.directory / "a.txt").as_uri()}]
        sent = [app.prompt(session, "", parts=body, whenBusy="interrupt", messageID="msg_b") for _ in range(4)]
        answers = await asyncio.gather(*sent)
        assert [(texts(answer), answer["info"].get("error")) for answer in answers] == [(["Two."], None)] * 4


async def test_a_queued_prompt_gets_a_turn_of_its_own(tmp_path: Path) -> None:
    """Sent again it is queued once, and says one thing."""
    async with busy(tmp_path, [say("Two.")], [say("Three.")], queued="msg_two") as (app, session, gate, first, second):
        again = asyncio.create_task(app.prompt(session, "two", whenBusy="queue", messageID="msg_two"))
        await app.prompt(session, "else", whenBusy="queue", messageID="msg_two", expect=409)
        await app.prompt_async(session, "three", whenBusy="queue", messageID="msg_three")
        waiting = await queue_of(app, session, 2)
        assert [queued["prompt"]["parts"][0]["text"] for queued in waiting] == ["two", "three"]
        assert order(await app.messages(session))[0] == "one" and len(await app.messages(session)) == 2
        gate.set()
        assert texts(await first) == ["One."] and texts(await second) == texts(await again) == ["Two."]
        await until_idle(app, session)
        messages = await app.messages(session)
        assert order(messages) == ["one", "One.", "two", "Two.", "three", "Three."]
        assert messages[4]["info"]["id"] == "msg_three" and "two" not in str(requests(app)[0].messages)
        assert_finished(messages)
        app.provider.add([say("Four.")])
        assert texts(await app.prompt(session, "four", whenBusy="queue")) == ["Four."], "in an idle session it begins at once"


async def test_a_waiting_prompt_is_removed_and_its_client_is_told(tmp_path: Path) -> None:
    async with busy(tmp_path) as (app, session, gate, first, _), app.events() as events:
        second = asyncio.create_task(app.prompt(session, "two", whenBusy="queue"))
        (waiting,) = await queue_of(app, session, 1)
        assert await app.call("DELETE", f"/session/{session}/queue/{waiting['id']}") is True
        assert (await second)["name"] == "NoAnswerError"
        again = await app.call("DELETE", f"/session/{session}/queue/{waiting['id']}", expect=404)
        assert "waits in the queue" in again["data"]["message"]
        gate.set()
        await first
        await until_idle(app, session)
        assert order(await app.messages(session)) == ["one", "One."]
        await events.until("prompt.dequeued")


@pytest.mark.parametrize("again", ["two", "something else"])
async def test_a_queued_message_that_joins_after_all_leaves_the_queue(tmp_path: Path, again: str) -> None:
    """What is stored under its id stays, also where it says something else."""
    async with busy(tmp_path, [say("Both.")], [say("Too many.")], queued="msg_b") as (app, session, gate, first, _):
        joining = asyncio.create_task(app.prompt(session, again, messageID="msg_b"))
        await until_stored(app, session, 3)
        gate.set()
        await asyncio.gather(first, joining)
        await until_idle(app, session)
        found = await app.messages(session)
    assert [texts(message) for message in found if message["info"]["role"] == "user"] == [["one"], [again]]
    assert "Too many." not in order(found)
    assert_finished(found)


async def test_queued_prompts_survive_a_restart_and_one_whose_directory_is_gone_is_stored_with_the_error(tmp_path: Path) -> None:
    async with busy(tmp_path, queued="msg_two") as (app, session, _, first, second):
        elsewhere = tmp_path / "workspace" / "elsewhere"
        elsewhere.mkdir()
        body = {"parts": [text_part("three")], "whenBusy": "queue"}
        await app.post(f"/session/{session}/prompt_async", body, expect=204, params={"directory": str(elsewhere)})
        await queue_of(app, session, 2)
        first.cancel()
        second.cancel()
    elsewhere.rmdir()
    async with running_app(tmp_path, turns=[[say("Two.")]]) as app:
        await until_idle(app, session)
        *_, prompt, answer = messages = await app.messages(session)
    assert order(messages)[-3:] == ["two", "Two.", "three"]
    assert texts(prompt) == ["three"] and "elsewhere" in answer["info"]["error"]["data"]["message"]
    assert_finished(messages)


async def test_a_session_that_is_deleted_takes_its_queue_along(tmp_path: Path) -> None:
    async with busy(tmp_path, queued="msg_two") as (app, session, _, first, second):
        await app.call("DELETE", f"/session/{session}")
        assert (await second)["name"] in ("NoAnswerError", "NotFoundError")
        await asyncio.wait({first})


async def test_a_prompt_that_is_queued_as_its_session_is_deleted_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with busy(tmp_path, queued="msg_two") as (app, session, _, first, second):
        query = app.services.store.query

        async def deleted_behind_it(what: Any, *args: Any, **options: Any) -> Any:
            found = await query(what, *args, **options)
            if what is work_rows.queued_prompts:
                monkeypatch.undo()
                await app.call("DELETE", f"/session/{session}")
            return found

        monkeypatch.setattr(app.services.store, "query", deleted_behind_it)
        assert (await app.prompt(session, "three", whenBusy="queue", expect=404))["name"] == "NotFoundError"
        await asyncio.wait({first, second})


async def test_a_prompt_that_is_sent_again_has_the_answer_of_the_turn_that_it_joined(tmp_path: Path) -> None:
    async with busy(tmp_path, [say("Both.")], [say("Later.")]) as (app, session, gate, *_):
        joined = []
        for stored, name in enumerate(["msg_two", "msg_three"], start=3):
            joined.append(asyncio.create_task(app.prompt(session, "joins", messageID=name)))
            await until_stored(app, session, stored)
        gate.set()
        assert [texts(answer) for answer in await asyncio.gather(*joined)] == [["Both."], ["Both."]]
        assert texts(await app.prompt(session, "four")) == ["Later."]
        assert texts(await app.prompt(session, "joins", messageID="msg_two")) == ["Both."]


async def test_a_prompt_whose_sender_goes_away_while_it_is_queued_gets_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with busy(tmp_path, [say("Two.")]) as (app, session, gate, *_):
        services, wanted = app.services, PromptInput.model_validate({"parts": [text_part("two")], "whenBusy": "queue"})
        instance, prompted = await services.instances.get(str(app.directory)), await services.store.session_to_prompt(session)
        accepting, post = asyncio.create_task(services.queue.accept(instance, prompted, wanted)), services.store.post

        def cancelling(*args: Any, **options: Any) -> Any:
            if getattr(args[2], "__name__", "") == "enqueue":
                asyncio.get_running_loop().call_soon(accepting.cancel)
            return post(*args, **options)

        monkeypatch.setattr(services.store, "post", cancelling)
        await asyncio.wait({accepting})
        assert accepting.cancelled()
        gate.set()
        await until_stored(app, session, 4)
        await until_idle(app, session)
        assert texts((await app.messages(session))[-1]) == ["Two."]


async def test_a_prompt_that_is_being_queued_as_the_queue_ends_has_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with busy(tmp_path, [say("Two.")], [say("Three.")], queued="msg_two") as (app, session, gate, first, second):
        post, is_queued, is_over = app.services.store.post, asyncio.Event(), asyncio.Event()

        async def later(*args: Any) -> Any:
            is_queued.set()
            await is_over.wait()
            return await post(*args)

        def slow(*args: Any, **options: Any) -> Any:
            is_queueing = getattr(args[2], "__name__", "") == "enqueue"
            return asyncio.ensure_future(later(*args)) if is_queueing else post(*args, **options)

        monkeypatch.setattr(app.services.store, "post", slow)
        third = asyncio.create_task(app.prompt(session, "three", whenBusy="queue"))
        await is_queued.wait()
        gate.set()
        await asyncio.gather(first, second)
        await until(lambda: app.services.live.get(session).queue_worker is None)
        is_over.set()
        assert texts(await third) == ["Three."]


async def test_what_is_wrong_is_named(app: RunningApp, session: str) -> None:
    """A prompt that wants no answer, for one, does not wait for a turn."""
    wrong = {"whenBusy": "later"}, {"deadlineSeconds": 0}, {"deadlineSeconds": 10**9}, {"whenBusy": "queue", "noReply": True}
    for fields in wrong:
        assert next(iter(fields)) in str(await app.prompt(session, "one", expect=400, **fields))
    assert await app.messages(session) == []


async def test_a_prompt_whose_queueing_is_refused_leaves_nothing_behind(tmp_path: Path) -> None:
    async with busy(tmp_path) as (app, session, *_), app.events() as events:
        before = alive(QueuedPromptWait)
        with refused_commits() as commits:
            commits.refused_text = "never queued"
            for _ in range(3):
                await app.prompt(session, "never queued", whenBusy="queue", expect=503)
        assert alive(QueuedPromptWait) == before
        assert await app.get(f"/session/{session}/queue") == [] and "prompt.queued" not in events.types


@pytest.mark.parametrize("column", ["input", "message"])
async def test_a_damaged_row_of_the_queue_holds_up_none_behind_it(tmp_path: Path, column: str) -> None:
    async with busy(tmp_path, [say("Three.")], queued="msg_two") as (app, session, gate, first, second):
        third = asyncio.create_task(app.prompt(session, "three", whenBusy="queue"))
        damaged, behind = await queue_of(app, session, 2)
        with sqlite3.connect(app.data_dir / "opensession.db") as database:
            database.execute(f"UPDATE queued_prompt SET {column} = ? WHERE id = ?", ('{"damaged"', damaged["id"]))
        assert [queued["id"] for queued in await app.get(f"/session/{session}/queue")] == [behind["id"]]
        gate.set()
        await first
        assert (await second)["name"] == "NoAnswerError" and texts(await third) == ["Three."]
        await until_idle(app, session)
        assert order(await app.messages(session)) == ["one", "One.", "three", "Three."]


async def test_a_turn_ends_at_its_deadline_with_its_tools_ended_and_the_error_stored(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[say("I run it."), bash("sleep 60")], [say("Next.")]], title="T") as (app, session):
        answer = await app.prompt(session, "one", deadlineSeconds=2)
        error = answer["info"]["error"]
        assert error["name"] == "MessageAbortedError" and "deadline" in error["data"]["message"]
        assert [state["status"] for state in await states(app, session)] == ["error"]
        assert (await app.messages(session))[0]["info"]["deadline"] > answer["info"]["time"]["created"]
        assert texts(await app.prompt(session, "two")) == ["Next."]
        assert_finished(await app.messages(session))


async def test_a_clock_that_is_set_back_during_a_turn_delays_no_deadline(tmp_path: Path) -> None:
    gate = asyncio.Event()
    first, second = [say("I run it."), {"wait": gate}, bash("true")], [say("Next."), {"wait": asyncio.Event()}]
    async with talking(tmp_path, turns=[first, second], title="T") as (app, session):
        answer = asyncio.create_task(app.prompt(session, "one", deadlineSeconds=3))
        await until(lambda: requests(app))
        clock.set_source(lambda: time.time() - 3600)
        gate.set()
        async with asyncio.timeout(20):
            assert "deadline" in (await answer)["info"]["error"]["data"]["message"]


async def test_the_deadline_of_a_prompt_that_joins_ends_the_turn(tmp_path: Path) -> None:
    async with busy(tmp_path) as (app, session, _, first, _):
        second = await app.prompt(session, "two", deadlineSeconds=0.2)
        assert "deadline" in second["info"]["error"]["data"]["message"]
        await first


async def test_a_queued_prompt_whose_deadline_has_passed_is_not_sent_to_the_model(tmp_path: Path) -> None:
    async with busy(tmp_path, [say("Two.")]) as (app, session, gate, first, _):
        second = asyncio.create_task(app.prompt(session, "two", whenBusy="queue", deadlineSeconds=0.1))
        await queue_of(app, session, 1)
        await asyncio.sleep(0.15)
        gate.set()
        await first
        assert "deadline" in (await second)["info"]["error"]["data"]["message"]
        assert len(requests(app)) == 1
