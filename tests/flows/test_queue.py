"""Prompts that meet: in a busy session, many at once, the same one again."""

import asyncio
from pathlib import Path

from running_app import RunningApp, running_app
from turns import assert_finished, bash, requests, say, statuses, talking, texts, until

from app.provider.base import TextBlock


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
