"""Random conversations, as every adapter sends them: whatever happened in one, its next request is one that providers accept."""

from collections.abc import Sequence
from typing import Any

import conversation as talk
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from long_form import LONG

from app.providers.anthropic_messages import anthropic_body
from app.providers.base import AssistantTurn, ModelMessage, ModelRequest, Npm, TextBlock, ToolCallBlock, ToolTurn, UserTurn
from app.providers.estimate import estimate_messages
from app.providers.openai_chat import chat_body
from app.providers.openai_responses import responses_body
from app.providers.shorten import LEFT_OUT, shortened
from app.providers.transform import prepare
from app.schema.errors import unknown
from app.schema.message import MessageWithParts
from app.schema.model import Capabilities, Modalities, Model, ModelApi
from app.schema.part import AgentPart, PatchPart
from app.turn.context.history import remind, to_model_messages
from app.turn.ends import aborted

SECRET = "not for the model"
FOREIGN = {"anthropic": {"signature": SECRET}, "openai": {"itemId": SECRET, "reasoningEncryptedContent": SECRET}}
OWN = {"anthropic": {"signature": "s"}, "openai": {"itemId": "i", "reasoningEncryptedContent": "e"}}
IDS = {"session_id": "ses_1", "message_id": "msg_0"}


def of_package(package: str, api_id: str = "small-1", **fields: Any) -> Model:
    return talk.model(api_id=api_id).model_copy(update={"api": ModelApi(id=api_id, npm=package), **fields})


SEEING = Capabilities(input=Modalities(image=True, pdf=True), reasoning=True)
MODELS = {
    "chat": of_package(Npm.OPENAI_COMPATIBLE),
    "chat that sees": of_package(Npm.OPENAI_COMPATIBLE, capabilities=SEEING),
    "mistral": of_package(Npm.OPENAI_COMPATIBLE, "mistral-large"),
    "claude by a proxy": of_package(Npm.OPENROUTER, "anthropic/claude-sonnet-4.5"),
    "responses": of_package(Npm.OPENAI, "gpt-5", capabilities=SEEING),
    "anthropic": of_package(Npm.ANTHROPIC, "claude-sonnet-4-5", capabilities=SEEING),
}

outputs = st.sampled_from(["", "out", "x" * 3_000])
states = st.one_of(
    st.builds(talk.completed, outputs),
    st.builds(talk.completed, outputs, st.none(), st.lists(st.builds(talk.file), max_size=2)),
    st.builds(talk.completed, st.just(SECRET), st.just(1), st.lists(st.builds(talk.file), max_size=1)),
    st.sampled_from([talk.failed(), talk.failed(""), talk.pending(), talk.running()]),
)


@st.composite
def answers(draw: st.DrawFn) -> MessageWithParts:
    same = draw(st.booleans())
    metadata = st.sampled_from([None, OWN if same else FOREIGN])
    ids = draw(st.permutations(["call_1", "call_2", "toolu_01:x/y", "functions.read:0", "é"]))
    parts = draw(
        st.lists(
            st.one_of(
                st.builds(talk.text, st.sampled_from(["", " ", "said"]), metadata=metadata),
                st.builds(talk.reasoning, st.sampled_from(["", "thought"]), metadata=metadata),
                st.builds(talk.tool, states, metadata=metadata),
                st.builds(talk.step_start),
                st.builds(talk.step_finish),
                st.just(PatchPart(id="prt_9", hash=SECRET, files=[SECRET], **IDS)),
            ),
            max_size=6,
        )
    )
    calls = iter(ids if draw(st.booleans()) else [*ids[:1], "other", "third", "fourth", "fifth", "sixth"])
    parts = [part.model_copy(update={"call_id": next(calls, part.id)}) if part.type == "tool" else part for part in parts]
    error = draw(st.sampled_from([None, None, None, aborted(), unknown("no")]))
    return talk.assistant(
        "msg_0",
        *parts,
        error=error,
        finish=draw(st.sampled_from(["stop", "tool-calls", None])),
        model_id="small-1" if same else "large-1",
        summary=draw(st.sampled_from([None, True])),
        agent=draw(st.sampled_from(["build", "plan"])),
    )


prompts = st.lists(
    st.one_of(
        st.builds(talk.text, st.sampled_from(["", " ", "hi", "x" * 2_000]), synthetic=st.sampled_from([None, True])),
        st.builds(talk.text, st.just(SECRET), ignored=st.just(True)),
        st.builds(talk.file, st.sampled_from(["image/png", "application/pdf", "text/plain", "audio/wav", "application/zip"])),
        st.builds(talk.subtask),
        st.builds(talk.compaction),
        st.just(AgentPart(id="prt_8", name=SECRET, **IDS)),
    ),
    max_size=4,
).map(lambda parts: talk.user(*parts))
histories = st.lists(st.one_of(prompts, answers()), max_size=8).map(lambda messages: [*messages, talk.user(talk.text("go on"))])


def sent(history: Sequence[MessageWithParts], target: Model) -> tuple[ModelMessage, ...]:
    return to_model_messages(remind(history, talk.agent(), 2), target)


def assert_paired(turns: Sequence[ModelMessage]) -> None:
    for location, turn in enumerate(turns):
        assert turn.content
        calls = [block.call_id for block in turn.content if isinstance(block, ToolCallBlock)]
        after = turns[location + 1] if location + 1 < len(turns) else None
        if isinstance(turn, AssistantTurn):
            assert len(set(calls)) == len(calls)
            assert ([block.call_id for block in after.content] if isinstance(after, ToolTurn) else []) == calls
        if isinstance(turn, ToolTurn):
            assert location and isinstance(turns[location - 1], AssistantTurn)


def assert_chat(body: dict[str, Any]) -> None:
    open_calls: list[str] = []
    for message in body["messages"]:
        match message["role"]:
            case "tool":
                open_calls.remove(message["tool_call_id"])
            case role:
                assert not open_calls, "every call has its result before anything else is said"
                assert role in ("system", "user", "assistant")
                open_calls = [call["id"] for call in message.get("tool_calls") or ()]
                assert message.get("content") or open_calls or message.keys() - {"role", "content", "cache_control"}
    assert not open_calls


def assert_responses(body: dict[str, Any]) -> None:
    calls = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
    results = [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]
    assert sorted(calls) == sorted(results) and len(set(calls)) == len(calls)


def assert_anthropic(body: dict[str, Any]) -> None:
    messages = body["messages"]
    assert [message["role"] for message in messages] == [("user", "assistant")[location % 2] for location in range(len(messages))]
    calls = [[block["id"] for block in message["content"] if block["type"] == "tool_use"] for message in messages]
    for location, message in enumerate(messages):
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        assert results == (calls[location - 1] if location else [])
        kinds = [block["type"] for block in message["content"]]
        assert kinds[: len(results)] == ["tool_result"] * len(results), "results stand first"
        assert all(block["text"].strip() for block in message["content"] if block["type"] == "text")
    every = [call for of_message in calls for call in of_message]
    assert len(set(every)) == len(every), "an id is given once in a request"


CHECKS = {Npm.OPENAI: (responses_body, assert_responses), Npm.ANTHROPIC: (anthropic_body, assert_anthropic)}


@pytest.mark.parametrize("target", MODELS.values(), ids=MODELS.keys())
@given(history=histories)
@settings(max_examples=80 if LONG else 30, deadline=None)
def test_any_history_becomes_a_request_that_its_provider_accepts(target: Model, history: list[MessageWithParts]) -> None:
    messages = sent(history, target)
    assert_paired(messages)
    build, check = CHECKS.get(target.api.npm, (chat_body, assert_chat))
    body = build(prepare(ModelRequest(model=target, system=("first", "second"), messages=messages, session_id="ses_1")))
    check(body)
    assert SECRET not in str(body), "nothing ignored, cleared or private to another model is sent"


@given(history=histories, room=st.integers(0, 3_000))
@settings(max_examples=80 if LONG else 30, deadline=None)
def test_a_shortened_conversation_fits_is_paired_and_ends_as_it_did(history: list[MessageWithParts], room: int) -> None:
    whole = sent(history, MODELS["chat"])
    short = shortened(whole, room)
    assert_paired(short)
    assert estimate_messages(short) <= room + 60
    if estimate_messages(whole) <= room:
        assert short == whole
    if room > 500:
        assert "go on" in str(short[-1])


def test_of_what_is_left_out_the_users_words_stay() -> None:
    said = [UserTurn((TextBlock(f"request {number}"),)) for number in range(5)]
    turns = tuple(turn for one in said for turn in (one, AssistantTurn((TextBlock("x" * 4_000),))))
    beginning, *rest = shortened(turns, 1_500)
    assert isinstance(beginning, UserTurn) and LEFT_OUT in str(beginning)
    assert all(f"request {number}" in str((beginning, *rest)) for number in range(5))
    assert rest[-1] == turns[-1]
