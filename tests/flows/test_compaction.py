"""Summing a conversation up: when the user asks for it, and when the model's window is full."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from running_app import RunningApp
from turns import BIG, bash, priced, requests, say, summarize, talking, texts, title_requests, types, until_stored

from app.providers.base import TextBlock
from app.providers.scripted import Say, ScriptedProvider, SetUsage
from app.record.engine import StorageError
from app.turn import compaction

WINDOW = {"limit": {"context": 10_000, "output": 1_000}}
FULL = {"usage": {"input": 9_500, "output": 20}}

SERVED_WITH = {"config": priced(**WINDOW)}


def request_texts(request: Any) -> list[str]:
    """Who says what in a request."""
    return [
        f"{turn.role}: " + " ".join(block.text for block in turn.content if isinstance(block, TextBlock))
        for turn in request.messages
    ]


async def test_summarize_stores_a_question_and_its_summary(app: RunningApp, session: str) -> None:
    app.provider.add([say("Paris.")], [say("They asked about France.")])
    await app.prompt(session, "The capital of France?", agent="plan")
    async with app.events() as events:
        assert await summarize(app, session) is True
        await events.until("session.idle")
        assert events.types.count("session.compacted") == 1
        assert events.types.index("session.compacted") < events.types.index("session.idle")
    question, summary = (await app.messages(session))[2:]
    assert [(part["type"], part["auto"]) for part in question["parts"]] == [("compaction", False)]
    assert (question["info"]["agent"], question["info"]["model"]) == ("plan", BIG)
    info = summary["info"]
    assert types(summary) == ["step-start", "text", "step-finish"]
    assert (info["mode"], info["agent"], info["summary"], info["finish"]) == ("compaction", "compaction", True, "stop")
    assert info["parentID"] == question["info"]["id"]
    asked = requests(app)[-1]
    assert asked.tools == ()
    assert [line.split(":")[0] for line in request_texts(asked)] == ["user", "assistant", "user", "user"]
    assert "The capital of France?" in request_texts(asked)[0]


async def test_where_the_agents_for_summaries_and_titles_are_disabled_a_session_goes_on_without(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    off = {"agent": {name: {"disable": True} for name in ("compaction", "title")}}
    async with talking(tmp_path, config={**priced(**WINDOW), **off}) as (app, session):
        app.provider.add([say("Paris."), FULL], [say("Rome.")])
        await app.prompt(session, "The capital of France?")
        assert texts(await app.prompt(session, "And of Italy?")) == ["Rome."]
        assert "no agent 'compaction'" in (await summarize(app, session, expect=400))["data"]["message"]
        assert len(await app.messages(session)) == 4 and title_requests(app) == []
    assert [record for record in caplog.records if record.exc_info] == []


async def test_after_it_the_model_is_sent_the_newest_summary_and_what_is_new_alone(app: RunningApp, session: str) -> None:
    said = ["Paris.", "They asked about France.", "Rome.", "Madrid.", "Second summary.", "Lisbon."]
    app.provider.add(*([say(text)] for text in said))
    await app.prompt(session, "The capital of France?")
    await summarize(app, session)
    await app.prompt(session, "And of Italy?")
    await app.prompt(session, "And of Spain?")
    assert request_texts(requests(app)[-1]) == [
        "user: What did we do so far?",
        "assistant: They asked about France.",
        "user: And of Italy?",
        "assistant: Rome.",
        "user: And of Spain?",
    ]
    assert "Paris" not in str(requests(app)[-1].messages)
    everything = await app.messages(session)
    assert len(everything) == 8 and texts(everything[1]) == ["Paris."]
    await summarize(app, session)
    assert "They asked about France." in str(requests(app)[-1].messages)
    await app.prompt(session, "And of Portugal?")
    sent = str(requests(app)[-1].messages)
    assert "Second summary." in sent and "They asked about France." not in sent


async def test_an_unknown_model_is_rejected_before_anything_is_stored(app: RunningApp, session: str) -> None:
    app.provider.add([say("Paris.")], [say("Rome.")])
    await app.prompt(session, "The capital of France?")
    refused = await summarize(app, session, modelID="nothing", expect=400)
    assert refused["name"] == "ProviderModelNotFoundError"
    assert len(await app.messages(session)) == 2
    assert texts(await app.prompt(session, "And of Italy?")) == ["Rome."]


FAILING: dict[str, list[Any]] = {
    "refused": [{"status": 400, "message": "too much"}],
    "cut off": [say("Half a summ"), {"cut": True}],
    "empty": [say("  ")],
    "a call": [say("x"), bash("touch ran")],
    "no room for it": [{"finish": "length"}],
}


async def test_a_summary_that_failed_leaves_the_session_as_it_was(app: RunningApp) -> None:
    for kind, failing in FAILING.items():
        session = (await app.create_session(title="T"))["id"]
        app.provider.add([say("Paris.")], failing, [say("Rome.")], [say("A summary.")], [say("Madrid.")])
        await app.prompt(session, "The capital of France?")
        async with app.events() as events:
            await summarize(app, session)
            await events.until("session.idle")
            assert "session.compacted" not in events.types and "session.error" in events.types, kind
        summary = (await app.messages(session))[-1]["info"]
        assert summary["summary"] is True and "error" in summary and not (app.directory / "ran").exists(), kind
        assert texts(await app.prompt(session, "And of Italy?")) == ["Rome."]
        assert "Paris." in str(requests(app)[-1].messages)
        await summarize(app, session)
        assert texts(await app.prompt(session, "And of Spain?")) == ["Madrid."]
        assert "Paris." not in str(requests(app)[-1].messages)


@asynccontextmanager
async def summing(app: RunningApp, session: str, *later: list[Any]) -> AsyncIterator[asyncio.Event]:
    """A summary of an answer, which goes on when the event is set and has ended with the block."""
    gate = asyncio.Event()
    app.provider.add([say("Paris.")], [say("They asked"), {"wait": gate}], *later)
    await app.prompt(session, "The capital of France?")
    async with app.events() as events:
        running = asyncio.create_task(summarize(app, session))
        await events.until(lambda event: event.properties.get("delta") is not None)
        yield gate
        await running


async def test_an_aborted_summary_leaves_the_session_as_it_was(app: RunningApp, session: str) -> None:
    async with summing(app, session, [say("Rome.")]):
        assert (await app.get(f"/session/{session}"))["time"]["compacting"] > 0
        await app.post(f"/session/{session}/abort")
    assert "compacting" not in (await app.get(f"/session/{session}"))["time"]
    assert (await app.messages(session))[-1]["info"]["error"]["name"] == "MessageAbortedError"
    assert texts(await app.prompt(session, "And of Italy?")) == ["Rome."]
    assert "Paris." in str(requests(app)[-1].messages)


async def test_a_prompt_during_a_summary_is_answered_after_it(app: RunningApp, session: str) -> None:
    async with summing(app, session, [say("Rome.")]) as gate:
        assert (await app.get(f"/session/{session}"))["time"]["compacting"] > 0
        prompting = asyncio.create_task(app.prompt(session, "And of Italy?"))
        await until_stored(app, session, 5)
        gate.set()
    assert texts(await prompting) == ["Rome."] and "Paris." not in str(requests(app)[-1].messages)
    assert "compacting" not in (await app.get(f"/session/{session}"))["time"]


async def test_in_a_fork_made_during_a_summary_a_prompt_is_answered_without_it(app: RunningApp, session: str) -> None:
    async with summing(app, session, [{"status": 400, "message": "no"}], [say("Rome.")]) as gate:
        fork = (await app.post(f"/session/{session}/fork"))["id"]
        gate.set()
    assert texts(await app.prompt(fork, "And of Italy?")) == ["Rome."]
    assert "Paris." in str(requests(app)[-1].messages)


async def test_a_compaction_agent_may_have_its_own_model_and_prompt(tmp_path: Path) -> None:
    config = {**priced(), "agent": {"compaction": {"model": "acme/other", "prompt": "Sum up in verse."}}}
    async with talking(tmp_path, config=config) as (app, session):
        app.provider.add([say("Paris.")], [say("A verse.")])
        await app.prompt(session, "The capital of France?")
        await summarize(app, session)
        assert requests(app)[-1].model.id == "other"
        assert "Sum up in verse." in str(requests(app)[-1].system)
        assert (await app.messages(session))[-1]["info"]["modelID"] == "other"


async def test_a_full_window_is_compacted_and_the_turn_goes_on(app: RunningApp, session: str) -> None:
    app.provider.add([bash("echo hi"), FULL], [say("A summary.")], [say("Goes on.")])
    answer = await app.prompt(session, "Do something long")
    assert texts(answer) == ["Goes on."]
    question, summary, continuation, last = (await app.messages(session))[2:]
    assert [(part["type"], part["auto"]) for part in question["parts"]] == [("compaction", True)]
    assert (summary["info"]["summary"], summary["info"]["finish"]) == (True, "stop")
    assert types(summary) == ["step-start", "text", "step-finish"]
    (text,) = continuation["parts"]
    assert (text["type"], text["synthetic"]) == ("text", True) and text["time"]["end"] >= text["time"]["start"]
    assert continuation["info"]["agent"] == "build"
    assert last == answer and last["info"]["parentID"] == continuation["info"]["id"]
    assert [line.split(":")[0] for line in request_texts(requests(app)[-1])] == ["user", "assistant", "user"]
    assert "Do something long" not in str(requests(app)[-1].messages)


async def test_an_answer_that_just_fits_is_not_compacted(app: RunningApp, session: str) -> None:
    app.provider.add([say("Fits."), {"usage": {"input": 8_000, "cache_read": 900, "output": 100}}], [say("Still.")])
    await app.prompt(session, "One")
    await app.prompt(session, "Two")
    assert len(await app.messages(session)) == 4
    app.provider.add([say("One more."), {"usage": {"input": 8_000, "cache_read": 900, "output": 101}}], [say("S.")], [say("On.")])
    await app.prompt(session, "Three")
    assert len(await app.messages(session)) == 10


@pytest.mark.parametrize(("auto", "flag"), [(False, ""), (True, "1")], ids=["by configuration", "by flag"])
async def test_compaction_may_be_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, auto: bool, flag: str) -> None:
    monkeypatch.setenv("OPENCODE_DISABLE_AUTOCOMPACT", flag)
    async with talking(tmp_path, config={**priced(**WINDOW), "compaction": {"auto": auto}}) as (app, session):
        app.provider.add([say("Full."), FULL], [say("Fuller."), FULL])
        await app.prompt(session, "One")
        await app.prompt(session, "Two")
        assert len(await app.messages(session)) == 4


async def test_compacting_that_does_not_help_ends_with_a_stored_error(tmp_path: Path) -> None:
    always_full = ScriptedProvider(otherwise=lambda _: (Say("Still full."), SetUsage({"input": 9_500})))
    async with talking(tmp_path, config=priced(**WINDOW), provider=always_full) as (app, session):
        answer = await app.prompt(session, "Too much")
        assert "window" in answer["info"]["error"]["data"]["message"]
        messages = await app.messages(session)
        assert sum(message["info"].get("summary") is True for message in messages) == 2
        assert len(requests(app)) == 5
        assert await app.get("/session/status") == {}
        await app.prompt(session, "Still too much")
        assert len(requests(app)) <= 12


async def test_an_automatic_summary_that_failed_ends_the_turn_with_its_error(app: RunningApp, session: str) -> None:
    app.provider.add([bash("echo hi"), FULL], [{"status": 400, "message": "no"}], [say("A summary.")], [say("Goes on.")])
    answer = await app.prompt(session, "Do something long")
    assert answer["info"]["summary"] is True and answer["info"]["error"]["name"] == "APIError"
    assert await app.get("/session/status") == {}
    assert texts(await app.prompt(session, "Try again")) == ["Goes on."]


async def test_a_session_whose_summary_s_end_could_not_be_stored_compacts_no_more(
    app: RunningApp, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = compaction._show_compacting

    async def refused_at_the_end(ctx: Any, since: int | None) -> None:
        if since is None:
            raise StorageError("database or disk is full")
        await show(ctx, since)

    app.provider.add([say("Paris.")], [say("They asked about France.")])
    await app.prompt(session, "The capital of France?")
    monkeypatch.setattr(compaction, "_show_compacting", refused_at_the_end)
    await summarize(app, session)
    assert "compacting" not in (await app.get(f"/session/{session}"))["time"]
