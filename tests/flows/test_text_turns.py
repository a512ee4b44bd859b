"""Turns without tools: what is stored, what the model is sent, what clients hear."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest
import turns
from running_app import running_app
from turns import BIG, configured, infos, parts, priced, requests, say, statuses, talking, texts, title_requests, titled

from app.providers.base import BlockEnd, ModelRequest, ReasoningBlock, StreamEvent, TextBlock
from app.providers.scripted import TITLE, Say, ScriptedProvider


async def test_a_text_turn_is_stored_as_clients_know_it(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[say("Hello there.")]]) as (app, session):
        answer = await app.prompt(session, "Hi")
        user, stored = await app.messages(session)
        directory = str(app.directory)
    assert stored == answer
    info = user["info"]
    wanted = {"role": "user", "sessionID": session, "agent": "build", "model": {"providerID": "scripted", "modelID": "rules"}}
    assert {key: info[key] for key in wanted} == wanted
    assert [(part["type"], part["text"], part["messageID"]) for part in user["parts"]] == [("text", "Hi", info["id"])]
    answered = stored["info"]
    assert answered.pop("time")["created"] > 0
    assert answered == {
        "id": answered["id"],
        "sessionID": session,
        "role": "assistant",
        "parentID": info["id"],
        "modelID": "rules",
        "providerID": "scripted",
        "mode": "build",
        "agent": "build",
        "path": {"cwd": directory, "root": directory},
        "cost": 0,
        "tokens": {"input": 100, "output": 20, "reasoning": 0, "cache": {"read": 0, "write": 0}},
        "finish": "stop",
    }
    start, text, finish = stored["parts"]
    assert start["type"] == "step-start" and len(start["snapshot"]) == 40
    assert (text["type"], text["text"]) == ("text", "Hello there.") and text["time"]["start"] <= text["time"]["end"]
    assert (finish["type"], finish["reason"], finish["cost"]) == ("step-finish", "stop", 0)
    assert finish["tokens"] == answered["tokens"] and finish["snapshot"] == start["snapshot"]


async def test_tokens_and_cost_are_counted_exactly(tmp_path: Path) -> None:
    workspace = configured(tmp_path, priced(cost={"input": 1, "output": 2, "cache_read": 0.1, "cache_write": 0}))
    usage = {"input": 600, "output": 50, "reasoning": 10, "cache_read": 400}
    async with talking(tmp_path, workspace=workspace, turns=[[say(), {"usage": usage}]]) as (app, session):
        answer = await app.prompt(session, "Hi")
    assert answer["info"]["tokens"] == {"input": 600, "output": 50, "reasoning": 10, "cache": {"read": 400, "write": 0}}
    assert answer["info"]["cost"] == pytest.approx(0.00076, abs=1e-12)
    assert parts(answer, "step-finish")[0]["cost"] == answer["info"]["cost"]


class Sealing(ScriptedProvider):
    """Seals its reasoning as Anthropic does."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        async for event in super().stream(request):
            ends = isinstance(event, BlockEnd) and event.kind == "reasoning"
            yield replace(event, metadata={"acme": {"signature": "s"}}) if ends else event


async def test_reasoning_goes_back_to_the_model_that_thought_it(tmp_path: Path) -> None:
    provider = Sealing([[{"reasoning": "Hm."}, say("One.")], [say("Two.")], [say("Three.")]])
    async with talking(tmp_path, config=priced(), provider=provider) as (app, session):
        answer = await app.prompt(session, "first")
        await app.prompt(session, "second")
        await app.prompt(session, "third", model={"providerID": "acme", "modelID": "other"})
        _, same, other = requests(app)
    assert turns.types(answer) == ["step-start", "reasoning", "text", "step-finish"]
    thought = parts(answer, "reasoning")[0]
    assert thought["metadata"] == {"acme": {"signature": "s"}} and thought["time"]["end"]
    assert same.messages[1].content == (ReasoningBlock("Hm.", {"acme": {"signature": "s"}}), TextBlock("One."))
    assert other.messages[1].content == (ReasoningBlock("Hm."), TextBlock("One."))


async def test_fields_of_a_prompt_reach_the_request(tmp_path: Path) -> None:
    config = {**priced(variants={"high": {"reasoningEffort": "high"}}), "agent": {"review": {"prompt": "You review."}}}
    async with talking(tmp_path, config=config) as (app, session):
        fields = {
            "system": "Be brief.",
            "agent": "review",
            "variant": "high",
            "tools": {"bash": False, "read": True},
            "model": BIG,
        }
        await app.prompt(session, "Hi", **fields)
        (request,) = requests(app)
        user, answer = await app.messages(session)
        stored = await app.get(f"/session/{session}")
    assert request.system[0] == "You review." and request.system[1].endswith("Be brief.")
    assert request.model.id == "big" and request.options["reasoningEffort"] == "high"
    offered = {tool.id for tool in request.tools}
    assert "bash" not in offered and "read" in offered and "invalid" not in offered
    assert user["info"]["system"] == "Be brief." and user["info"]["variant"] == user["info"]["model"]["variant"] == "high"
    assert user["info"]["tools"] == {"bash": False, "read": True}
    assert answer["info"]["agent"] == answer["info"]["mode"] == "review" and answer["info"]["variant"] == "high"
    assert {"permission": "bash", "pattern": "*", "action": "deny"} in stored["permission"]


async def test_an_agents_variant_goes_with_its_own_model(tmp_path: Path) -> None:
    review = {"model": "acme/big", "variant": "high"}
    variants = {"high": {"reasoningEffort": "high"}, "low": {"reasoningEffort": "low"}}
    config = {**priced(variants=variants), "agent": {"review": review, "loose": {"variant": "high"}}}
    async with talking(tmp_path, config=config) as (app, session):
        await app.prompt(session, "1", agent="review")
        await app.prompt(session, "2", agent="review", variant="low")
        await app.prompt(session, "3", agent="loose", model=BIG)
        shown = {agent["name"]: agent.get("variant") for agent in await app.get("/agent")}
        stored = [info.get("variant") for info in infos(await app.messages(session))]
    assert [request.options.get("reasoningEffort") for request in requests(app)] == ["high", "low", None]
    assert all("variant" not in request.options for request in requests(app))
    assert (shown["review"], shown["loose"], shown["build"]) == ("high", "high", None) and stored == ["high", "low", None]


async def test_one_small_request_titles_the_session_and_its_first_prompt_while_it_is_answered(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with talking(tmp_path, turns=[[say("Well"), {"wait": gate}], [say()]]) as (app, session):
        prompt = asyncio.create_task(app.prompt(session, "Hi"))
        await turns.until(lambda: title_requests(app), "the title's request")
        assert (await titled(app, session))["title"] == TITLE and not prompt.done()
        gate.set()
        await prompt
        await app.prompt(session, "More")
        user = (await app.messages(session))[0]
        (request,) = title_requests(app)
    assert user["info"]["summary"] == {"title": TITLE, "diffs": []}
    assert request.tools == () and len(request.system) == 1 and request.messages[-1].content == (TextBlock("Hi"),)


async def test_a_prompt_that_wants_no_reply_is_only_stored(tmp_path: Path) -> None:
    async with talking(tmp_path) as (app, session):
        async with app.events() as events:
            kept = await app.prompt(session, "Remember this", noReply=True)
            assert kept["info"]["role"] == "user"
            assert requests(app) == [] and await statuses(app) == {}
            await app.prompt(session, "Now answer")
            await events.until("session.idle")
            assert events.types.count("session.idle") == 1
        (request,) = requests(app)
    assert [block.text for turn in request.messages for block in turn.content] == ["Remember this", "Now answer"]


async def test_everything_is_read_back_after_a_restart(tmp_path: Path) -> None:
    async with talking(tmp_path, turns=[[{"reasoning": "Hm."}, say("One.")]]) as (app, session):
        await app.prompt(session, "Hi")
        await titled(app, session)
        before = await app.messages(session), await app.get(f"/session/{session}")
    async with running_app(tmp_path, turns=[[say("Two.")]]) as app:
        assert (await app.messages(session), await app.get(f"/session/{session}")) == before
        assert texts(await app.prompt(session, "And?")) == ["Two."]
        await app.prompt(session, "So?")
    first, second = requests(app)
    assert [turn.role for turn in first.messages] == ["user", "assistant", "user"]
    assert [turn.role for turn in second.messages] == ["user", "assistant"] * 2 + ["user"]
    assert second.messages[:3] == first.messages and second.system[0] == first.system[0]
    assert [block.text for turn in second.messages[2:] for block in turn.content] == ["And?", "Two.", "So?"]


async def test_two_sessions_of_a_project_work_at_once(tmp_path: Path) -> None:
    gates = [asyncio.Event(), asyncio.Event()]
    steps = [[say("a"), {"wait": gates[0]}], [say("b"), {"wait": gates[1]}]]
    async with running_app(tmp_path, turns=steps) as app:
        one, two = await app.create_session(), await app.create_session()
        async with app.events() as events:
            await app.prompt_async(one["id"], "Hi")
            await app.prompt_async(two["id"], "Hi")
            await events.until(lambda event: bool(event.properties.get("delta")), count=2)
            assert await statuses(app) == {one["id"]: {"type": "busy"}, two["id"]: {"type": "busy"}}
            for gate in gates:
                gate.set()
            await events.until("session.idle", count=2)
        said = {(await app.messages(session["id"]))[-1]["parts"][1]["text"] for session in (one, two)}
    assert said == {"a", "b"}


async def test_the_last_step_s_answer_ends_a_bounded_agent(tmp_path: Path) -> None:
    config = {"agent": {"build": {"steps": 1}}}
    async with talking(tmp_path, config=config) as (app, session):
        await app.prompt(session, "Hi")
        (request,) = requests(app)
    assert [turn.role for turn in request.messages] == ["user", "assistant"]


async def test_the_first_prompt_goes_to_the_model_that_the_session_was_created_with(tmp_path: Path) -> None:
    async with running_app(tmp_path, workspace=configured(tmp_path, priced()), otherwise=lambda _: (Say("Hello."),)) as app:
        session = (await app.create_session(title="T", model={"providerID": "acme", "id": "other"}))["id"]
        first = await app.prompt(session, "Hi")
        await app.prompt(session, "Hi", model=BIG)
        third = await app.prompt(session, "Hi")
    assert first["info"]["modelID"] == "other" and third["info"]["modelID"] == "big"
