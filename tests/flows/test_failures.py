"""What providers do wrong, and what comes of it: another try, or a stored error."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncGenerator
from contextlib import closing
from itertools import count, groupby
from pathlib import Path
from typing import Any

import pytest
import turns
from refused_commits import RefusedCommits, refused_commits
from running_app import RunningApp, running_app
from turns import assert_finished, bash, configured, priced, requests, say, states, statuses, talking, texts, types

from app.providers import base
from app.providers.base import BlockDelta, BlockEnd, BlockStart, ModelRequest, StreamEvent, StreamStart
from app.providers.scripted import TITLE, ScriptedProvider, ScriptedTurn, parse_turn
from app.util import clock
from app.util.data_files import ServerLocks

BUSY = {"status": 429, "headers": {"retry-after-ms": "30"}, "message": "slow down"}


async def test_a_clock_that_is_set_forward_ends_no_retries(tmp_path: Path) -> None:
    first = {**BUSY, "headers": {"retry-after-ms": "1000"}}
    async with talking(tmp_path, turns=[[first], [BUSY], [say("Answered.")]], title="T") as (app, session):
        answer = asyncio.create_task(app.prompt(session, "go"))
        await turns.until(lambda: requests(app))
        clock.set_source(lambda: time.time() + 3600)
        assert texts(await answer) == ["Answered."]


class Breaking(ScriptedProvider):
    """Its first stream breaks after these events; what comes then is scripted."""

    def __init__(self, *events: StreamEvent, turns: Any = ()) -> None:
        super().__init__(turns)
        self._events = events
        self._broken = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        if "title" in request.model.id or self._broken:
            async for event in super().stream(request):
                yield event
            return
        self._broken = True
        for event in self._events:
            yield event
            await asyncio.sleep(0)
        raise base.ApiFailure("Connection reset by server", retryable=True, headers={"retry-after-ms": "10"})


async def prompted(app: RunningApp) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The answer to a prompt in a new session, and all its messages, finished."""
    answer = await app.prompt((await app.create_session())["id"], "Hi")
    messages = await app.messages(answer["info"]["sessionID"])
    assert_finished(messages)
    assert await statuses(app) == {}
    return answer, messages


async def test_a_busy_provider_is_asked_again_when_it_says(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[BUSY], [BUSY], [say("At last.")]]) as app:
        async with app.events() as events:
            answer, messages = await prompted(app)
            await events.until("session.idle")
            shown = [event.properties["status"] for event in events.of_type("session.status")]
            assert not events.of_type("session.error")
        assert len(requests(app)) == 3
    assert texts(answer) == ["At last."] and "error" not in answer["info"] and len(messages) == 2
    assert types(answer) == ["step-start", "text", "step-finish"]
    assert [kind for kind, _ in groupby(status["type"] for status in shown)] == ["busy", "retry", "busy", "retry", "busy", "idle"]
    retries = [status for status in shown if status["type"] == "retry"]
    assert [(status["attempt"], status["message"]) for status in retries] == [(1, "slow down"), (2, "slow down")]
    assert 0 < retries[1]["next"] - retries[0]["next"] < 5_000


@pytest.mark.parametrize(("status", "message"), [(400, "bad request"), (401, "no such key")])
async def test_an_error_that_will_come_again_is_stored(tmp_path: Path, status: int, message: str) -> None:
    failure = {"status": status, "message": message, "headers": {"x-id": "1"}, "body": {"why": "so"}}
    async with running_app(tmp_path, turns=[[failure], [say("Better.")]]) as app:
        async with app.events() as events:
            answer, messages = await prompted(app)
            await events.until("session.idle")
            errors = [event.properties for event in events.of_type("session.error")]
        assert len(requests(app)) == 1
        session = answer["info"]["sessionID"]
        assert texts(await app.prompt(session, "Again")) == ["Better."]
        assert [turn.role for turn in requests(app)[-1].messages] == ["user", "user"], "a failed answer is not sent"
        assert (await turns.titled(app, session))["title"] == TITLE, "from the second prompt"
    told = {"responseHeaders": {"x-id": "1"}, "responseBody": '{"why":"so"}'}
    error = {"name": "APIError", "data": {"message": message, "statusCode": status, "isRetryable": False, **told}}
    assert answer["info"]["error"] == error and errors == [{"sessionID": session, "error": error}]
    assert answer["parts"] == [] and len(messages) == 2 and "finish" not in answer["info"]


def anthropic(model: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "acme/m", "provider": {"acme": {"npm": "@ai-sdk/anthropic", "models": {"m": model}, **fields}}}


@pytest.mark.parametrize("thinking", ["on", {"type": "enabled", "budgetTokens": None}])
async def test_an_option_that_the_api_cannot_be_sent_is_named(tmp_path: Path, thinking: Any) -> None:
    model = {"name": "M", "limit": {"context": 100_000, "output": 8_000}, "options": {"thinking": thinking}}
    options = {"apiKey": "k", "baseURL": "http://127.0.0.1:9/v1"}
    async with running_app(tmp_path, workspace=configured(tmp_path, anthropic(model, options=options))) as app:
        answer, _ = await prompted(app)
    told = answer["info"]["error"]["data"]["message"]
    assert "thinking" in told and "configuration" in told and "Error:" not in told


async def test_a_missing_key_is_stored_as_such(tmp_path: Path) -> None:
    async with running_app(tmp_path, workspace=configured(tmp_path, anthropic({"name": "M"}, env=["ACME_KEY"]))) as app:
        answer, _ = await prompted(app)
    error = answer["info"]["error"]
    assert (error["name"], error["data"]["providerID"]) == ("ProviderAuthError", "acme")


async def test_a_model_that_is_gone_is_a_stored_error(tmp_path: Path) -> None:
    async with talking(tmp_path, config=priced()) as (app, session):
        await app.prompt(session, "Hi", noReply=True, model={"providerID": "acme", "modelID": "nope"})
        answer = await app.prompt(session, "Well?")
        assert "nope" in answer["info"]["error"]["data"]["message"]
        fine = await app.prompt(session, "Now?", model={"providerID": "acme", "modelID": "big"})
        assert texts(fine) == ["ok"]


async def test_text_of_a_broken_stream_does_not_stand_twice(tmp_path: Path) -> None:
    half = (StreamStart(), BlockStart("text", "t"), BlockDelta("text", "t", "Half an ans"))
    provider = Breaking(*half, turns=[[say("A whole answer.")]])
    async with running_app(tmp_path, provider=provider) as app:
        async with app.events() as events:
            answer, messages = await prompted(app)
            await events.until("session.idle")
            removed = events.of_type("message.part.removed")
    assert types(answer) == ["step-start", "text", "step-finish"] and texts(answer) == ["A whole answer."]
    assert len(messages) == 2 and len(removed) == 2


@pytest.mark.parametrize("parts", ["full", "delta"])
async def test_nothing_is_shown_of_a_broken_stream_once_it_is_removed(tmp_path: Path, parts: str) -> None:
    first, second = ([BlockDelta("text", block, f"word{number} ") for number in range(30)] for block in ("1", "2"))
    broken = (StreamStart(), BlockStart("text", "1"), *first, BlockEnd("text", "1"), BlockStart("text", "2"), *second)
    provider = Breaking(*broken, turns=[[say("Whole.")]])
    async with running_app(tmp_path, provider=provider) as app:
        async with app.events(parts=parts) as events:
            await prompted(app)
            await events.until("session.idle")
    removed: set[str] = set()
    for event in events.seen:
        part = event.properties.get("partID") or event.properties.get("part", {}).get("id")
        if event.type == "message.part.removed":
            removed.add(part)
        else:
            assert part not in removed, event
    assert len(removed) == 3


async def test_a_stream_that_breaks_after_a_call_does_not_run_it_twice(tmp_path: Path) -> None:
    broken = (base.ToolInputStart("c1", "bash"), base.ToolCall("c1", "bash", {"command": "echo x >> log", "description": "x"}))
    provider = Breaking(StreamStart(), *broken, turns=[[say("Ran.")]])
    async with running_app(tmp_path, provider=provider) as app:
        answer, messages = await prompted(app)
        assert (app.directory / "log").read_text() == "x\n"
        assert [state["status"] for state in await states(app, answer["info"]["sessionID"])] == ["completed"]
    assert texts(answer) == ["Ran."] and messages[1]["info"]["finish"] == "tool-calls"


async def test_a_stream_cut_short_is_taken_up_where_it_ended(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[say("Half"), {"cut": True}], [say("The rest.")]]) as app:
        answer, messages = await prompted(app)
        _, second = requests(app)
    assert [texts(message) for message in messages[1:]] == [["Half"], ["The rest."]]
    assert messages[1]["info"]["finish"] == "unknown" and "error" not in answer["info"]
    assert [turn.role for turn in second.messages] == ["user", "assistant"]


async def test_streams_that_never_end_properly_are_given_up(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[say("Half"), {"cut": True}]] * 9) as app:
        answer, _ = await prompted(app)
        error = answer["info"]["error"]
        assert error["name"] == "UnknownError" and "3 steps" in error["data"]["message"] and len(requests(app)) == 3
        again = await app.prompt(answer["info"]["sessionID"], "Again")
        assert "error" in again["info"] and len(requests(app)) == 6


def broken(request: ModelRequest) -> Any:
    raise ValueError("a bug")


@pytest.mark.parametrize(
    ("options", "parts", "finish", "error"),
    [
        ({"turns": [[{"finish": "stop"}]]}, ["step-start", "step-finish"], "stop", None),
        ({"turns": [[say("x"), {"finish": "length"}]]}, ["step-start", "text", "step-finish"], "length", None),
        ({"turns": [[{"reasoning": "Hm"}, {"finish": "length"}]]}, None, "length", ("MessageOutputLengthError", {})),
        ({"otherwise": broken}, None, None, ("UnknownError", {"message": "ValueError: a bug"})),
    ],
    ids=["an empty answer", "out of length", "out of length with nothing said", "a failure of an unknown kind"],
)
async def test_odd_ends_are_answers_or_stored_errors(
    tmp_path: Path, options: dict[str, Any], parts: list[str] | None, finish: str | None, error: tuple[str, Any] | None
) -> None:
    async with running_app(tmp_path, **options) as app:
        answer, messages = await prompted(app)
        assert len(requests(app)) == 1 and len(messages) == 2
    info = answer["info"]
    assert parts is None or types(answer) == parts
    assert info.get("finish") == finish
    assert info.get("error") == (error and {"name": error[0], "data": error[1]})


# A database that refuses, as on a full disk.

NOT_STORED = "The server could not store this answer. Send a prompt to go on."


@pytest.mark.parametrize(
    ("row", "asked"),
    [('"status":"running"', 1), ('"status":"pending"', 1), ("'role': 'assistant'", 0)],
    ids=["a call is not run", "a call that is written is not run", "the model is not asked"],
)
async def test_what_cannot_be_stored_is_not_begun(tmp_path: Path, row: str, asked: int) -> None:
    steps = [[bash("echo x >> log")], [say("Said.")], [say("Again.")]]
    with refused_commits() as commits:
        async with running_app(tmp_path, turns=steps[1 - asked :]) as app:
            commits.starts_with = row
            message = await stored_after_refusals(app, commits)
            session = message["info"]["sessionID"]
            assert not (app.directory / "log").exists() and len(requests(app)) == asked
            assert message["info"]["error"]["data"]["message"] == NOT_STORED
            assert "completed" not in [state["status"] for state in await states(app, session)]
            assert texts(await app.prompt(session, "Go on")) == ["Said."]


async def test_a_session_is_idle_when_its_record_is_closed(tmp_path: Path) -> None:
    """However many commits are refused from the model's answer on."""
    asked = asyncio.Event()

    def answer(_request: ModelRequest) -> ScriptedTurn:
        asked.set()
        return parse_turn([say("Now.")])

    def refused() -> bool:
        return asked.is_set() and next(refusals, None) is not None

    with refused_commits() as commits:
        async with running_app(tmp_path, otherwise=answer) as app:
            commits.when = refused
            for count in range(1, 9):
                asked.clear()
                session, refusals = (await app.create_session(title="Named"))["id"], iter(range(count))
                async with app.events() as events:
                    await app.prompt_async(session, "Hi")
                    await events.until("session.idle")
                    messages = await app.messages(session)
                assert [message["info"]["role"] for message in messages] == ["user", "assistant"], count
                assert_finished(messages)
                assert next(refusals, None) is None


async def test_a_stream_that_cannot_be_stored_is_not_read_to_its_end(tmp_path: Path) -> None:
    provider = Endless()
    with refused_commits() as commits:
        async with running_app(tmp_path, provider=provider) as app:
            commits.starts_with = '"text":"word"'
            await stored_after_refusals(app, commits)
            await provider.closed.wait()


class Endless(ScriptedProvider):
    """Writes paragraph after paragraph until it is stopped."""

    def __init__(self) -> None:
        super().__init__([])
        self.closed = asyncio.Event()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        yield StreamStart()
        try:
            for block in map(str, count()):
                yield BlockStart("text", block)
                yield BlockDelta("text", block, "word")
                yield BlockEnd("text", block)
                await asyncio.sleep(0)
        finally:
            self.closed.set()


async def stored_after_refusals(app: RunningApp, commits: RefusedCommits) -> dict[str, Any]:
    """The answer to a prompt during which commits were refused, once it could be closed."""
    session = await app.create_session(title="Named")
    async with app.events() as events:
        assert (await app.prompt(session["id"], "Hi"))["name"] == "NoAnswerError"
        commits.refuses = False
        await events.until("session.idle")
    messages = await app.messages(session["id"])
    assert_finished(messages)
    return messages[-1]


# A session that another server takes over.


def take_over(app: RunningApp) -> None:
    """As another server does, with the session of the only run."""
    with closing(sqlite3.connect(app.data_dir / "opensession.db")) as connection, connection:
        taken = connection.execute("UPDATE run_lease SET owner = 'other', generation = generation + 1")
        assert taken.rowcount == 1


async def test_a_turn_of_a_session_that_another_server_took_over_does_nothing_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    taken_over = asyncio.Event()
    steps = [[say("Begun."), {"wait": taken_over}, bash("echo x >> log")]]
    async with talking(tmp_path, turns=steps, title="Named") as (app, session):
        async with app.events() as events:
            prompt = asyncio.create_task(app.prompt(session, "Hi"))
            await events.until(lambda event: "'text': 'Begun.'" in str(event.data))
        database, other = app.data_dir / "opensession.db", ServerLocks(app.data_dir / "servers")
        other.hold("other")
        take_over(app)
        taken_over.set()
        assert (await prompt)["name"] == "NoAnswerError", "what is there of the answer is not all of it"
        answer = (await app.messages(session))[-1]
        assert "error" not in answer["info"] and "completed" not in answer["info"]["time"], "the other server answers"
        assert not (app.directory / "log").exists() and not app.services.live.get(session).unstored_end
        assert await statuses(app) == {session: {"type": "busy"}}, "the other server says so"
        with closing(sqlite3.connect(database)) as connection:
            rows = connection.execute("SELECT role FROM message WHERE open ORDER BY seq").fetchall()
        assert rows == [("user",), ("assistant",)]
        assert not [record for record in caplog.records if record.exc_info], "nothing has failed"
        other.release()


async def test_a_summary_whose_session_another_server_took_over_is_not_said_to_be_there(tmp_path: Path) -> None:
    taken_over = asyncio.Event()
    async with talking(tmp_path, turns=[[say()], [say("Begun."), {"wait": taken_over}, say()]], title="Named") as (app, session):
        await app.prompt(session, "Hi")
        summary = asyncio.create_task(app.post(f"/api/session/{session}/compact", expect=503))
        await turns.until(lambda: len(requests(app)) == 2)
        take_over(app)
        taken_over.set()
        assert (await summary)["_tag"] == "ServiceUnavailableError"
