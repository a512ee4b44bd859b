"""What is sent to a provider in each of the three wire formats."""

from typing import Any

import pytest
from fake_provider import FakeServer, adapter, answer, ask, called, events_of, every_wire, limit, model, reasoning_model, user

from app.providers import base
from app.providers.anthropic_messages import anthropic_body
from app.providers.openai_chat import chat_body
from app.providers.openai_responses import responses_body
from app.schema.model import Capabilities, InterleavedField

MARK = {"cache_control": {"type": "ephemeral"}}
SONNET = model("claude-sonnet-4-5", npm=base.Npm.ANTHROPIC, limit=limit(64_000))
MODELS = {"chat": model(), "responses": reasoning_model("gpt-5"), "messages": SONNET}
PNG = base.FileBlock("image/png", "data:image/png;base64,aGk=", "a.png")
PDF = base.FileBlock("application/pdf", "data:application/pdf;base64,aGk=")
LINKED = base.FileBlock("application/pdf", "https://host/a.pdf", "a.pdf")
VIDEO = base.FileBlock("video/mp4", "data:video/mp4;base64,aGk=", "v.mp4")
UNSENT = "[{} was attached, but this kind of file can't be sent to the model.]"
READ = base.ToolSpec("read", "Reads.", {"type": "object"})
SIGNED, SEALED = {"anthropic": {"signature": "sign"}}, {"anthropic": {"redactedData": "sealed"}}


def facts(item_id: str, encrypted: str | None = None) -> dict[str, Any]:
    return {"openai": {"itemId": item_id, **({"reasoningEncryptedContent": encrypted} if encrypted else {})}}


def conversation() -> tuple[base.ModelMessage, ...]:
    """Something of everything, with what each of the formats has noted, and what is empty."""
    thought = base.ReasoningBlock
    thoughts = [
        thought("one", facts("rs_1")),
        thought("two", facts("rs_1", "secret")),
        thought("hm", SIGNED),
        thought("", SEALED),
    ]
    asked = base.ToolCallBlock("c1", "read", {"p": "a"}, facts("fc_1"))
    results = (base.ToolResultBlock("c1", "read", "see", files=(PNG,)), base.ToolResultBlock("c2", "grep", "no", is_error=True))
    return (
        *(user("first"), user("look", PNG, PDF, LINKED, VIDEO)),
        answer(*thoughts, thought("of another model"), base.TextBlock("I will", facts("msg_1")), asked),
        *(base.ToolTurn(results), *called("c3"), answer(thought("only thought")), user("go on")),
    )


def chat_request() -> dict[str, Any]:
    image = {"type": "image_url", "image_url": {"url": PNG.url}}
    file = {"type": "file", "file": {"filename": "document.pdf", "file_data": PDF.url}}
    texts = ["look", UNSENT.format("a.pdf (application/pdf)"), UNSENT.format("v.mp4 (video/mp4)")]
    look, linked, video = ({"type": "text", "text": text} for text in texts)
    attached = {"type": "text", "text": "Attached to the result of the read call c1:"}
    calls = [
        {"id": id_, "type": "function", "function": {"name": "read", "arguments": arguments}}
        for id_, arguments in (("c1", '{"p":"a"}'), ("c3", "{}"))
    ]
    return {
        "messages": [
            {"role": "system", "content": "a\n\nb\n\nc"},
            *({"role": "user", "content": "first"}, {"role": "user", "content": [look, image, file, linked, video]}),
            {"role": "assistant", "content": "I will", "tool_calls": calls[:1]},
            {"role": "tool", "tool_call_id": "c1", "content": "see"},
            {"role": "tool", "tool_call_id": "c2", "content": "no"},
            {"role": "user", "content": [attached, image]},
            {"role": "assistant", "content": None, "tool_calls": calls[1:]},
            *({"role": "tool", "tool_call_id": "c3", "content": "x"}, {"role": "user", "content": "go on"}),
        ],
        "stream_options": {"include_usage": True},
        "top_k": 5,
        "max_tokens": 100,
        "store": False,
        "tools": [{"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": READ.parameters}}],
        "reasoning_effort": "low",
        "verbosity": "low",
        "prompt_cache_key": "ses_1",
    }


def responses_request() -> dict[str, Any]:
    def said(text: str, kind: str = "input") -> dict[str, Any]:
        return {"type": f"{kind}_text", "text": text}

    image = {"type": "input_image", "image_url": PNG.url}
    file = {"type": "input_file", "filename": "document.pdf", "file_data": PDF.url}
    linked = {"type": "input_file", "file_url": LINKED.url}
    look = [said("look"), image, file, linked, said(UNSENT.format("v.mp4 (video/mp4)"))]
    summary = [{"type": "summary_text", "text": text} for text in ("one", "two")]
    return {
        "input": [
            {"role": "developer", "content": "a\n\nb\n\nc"},
            *({"role": "user", "content": [said("first")]}, {"role": "user", "content": look}),
            {"type": "reasoning", "summary": summary, "encrypted_content": "secret"},
            {"role": "assistant", "content": [said("I will", "output")]},
            {"type": "function_call", "call_id": "c1", "name": "read", "arguments": '{"p":"a"}'},
            {"type": "function_call_output", "call_id": "c1", "output": [said("see"), image]},
            {"type": "function_call_output", "call_id": "c2", "output": "no"},
            {"type": "function_call", "call_id": "c3", "name": "read", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c3", "output": "x"},
            {"role": "user", "content": [said("go on")]},
        ],
        "store": False,
        "max_output_tokens": 100,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "ses_1",
        "tools": [{"type": "function", "name": "read", "description": "Reads.", "parameters": READ.parameters, "strict": False}],
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low"},
    }


def messages_request() -> dict[str, Any]:
    def said(text: str, **mark: Any) -> dict[str, Any]:
        return {"type": "text", "text": text, **mark}

    encoded = {"type": "base64", "data": "aGk="}
    image = {"type": "image", "source": {**encoded, "media_type": "image/png"}}
    file = {"type": "document", "source": {**encoded, "media_type": "application/pdf"}}
    linked = {"type": "document", "source": {"type": "url", "url": LINKED.url}, "title": "a.pdf"}
    look = [said("look"), image, file, linked, said(UNSENT.format("v.mp4 (video/mp4)"))]
    thinking, sealed = (
        {"type": "thinking", "thinking": "hm", "signature": "sign"},
        {"type": "redacted_thinking", "data": "sealed"},
    )
    results = [
        {"type": "tool_result", "tool_use_id": "c1", "content": [said("see"), image]},
        {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
    ]
    calls = [{"type": "tool_use", "id": id_, "name": "read", "input": given} for id_, given in (("c1", {"p": "a"}), ("c3", {}))]
    last = [{"type": "tool_result", "tool_use_id": "c3", "content": "x"}, said("go on", **MARK)]
    return {
        "system": [said("a", **MARK), said("b", **MARK), said("c")],
        "messages": [
            {"role": "user", "content": [said("first"), *look]},
            {"role": "assistant", "content": [thinking, sealed, said("I will"), calls[0]]},
            *({"role": "user", "content": results}, {"role": "assistant", "content": [{**calls[1], **MARK}]}),
            {"role": "user", "content": last},
        ],
        "max_tokens": 100,
        "top_k": 5,
        "tools": [{"name": "read", "description": "Reads.", "input_schema": READ.parameters}],
    }


REQUESTS: Any = {"chat": chat_request, "responses": responses_request, "messages": messages_request}


@every_wire
async def test_the_whole_request(server: FakeServer, wire: str) -> None:
    options = {"reasoningEffort": "low", "reasoningSummary": "auto", "textVerbosity": "low", "promptCacheKey": "ses_1"}
    given = {"options": {**options, "store": False, "metadata": {"user_id": "u"}}, "top_k": 5, "max_output_tokens": 100}
    sampling = {"temperature": 0.5, "top_p": 0.9}
    request = ask(model=MODELS[wire], system=("a", "", "b", "c"), messages=conversation(), tools=(READ,), **sampling, **given)
    await events_of(adapter(server, wire), request)
    common = {"model": MODELS[wire].id, "stream": True, "metadata": {"user_id": "u"}, **sampling}
    assert server.body == {**common, **REQUESTS[wire]()}


@pytest.mark.parametrize("body_of", [chat_body, responses_body])
def test_no_option_is_another_model_or_another_address(body_of: Any) -> None:
    elsewhere = {"model": "dear", "stream": False, "messages": [], "input": [], "api_base": "http://x", "baseURL": "http://x"}
    body = body_of(ask(model=model("m"), options={**elsewhere, "stream_options": {"include_usage": False}}))
    assert body["model"] == "m" and body["stream"] is True and (body.get("input") or body.get("messages"))
    assert "http://x" not in str(body) and "False" not in str(body.get("stream_options"))


def test_reasoning_models_of_openai_have_another_name_for_the_limit() -> None:
    body = chat_body(ask(model=model("gpt-5-mini"), max_output_tokens=7))
    assert body["max_completion_tokens"] == 7 and "max_tokens" not in body


@pytest.mark.parametrize(
    ("field", "value"), [("reasoning_content", "ab"), ("reasoning_details", [{"type": "reasoning.text", "text": "ab"}])]
)
def test_interleaved_reasoning_returns_in_its_field(field: Any, value: Any) -> None:
    thinker = model(capabilities=Capabilities(interleaved=InterleavedField(field=field)))
    turn = answer(base.ReasoningBlock("a"), base.ReasoningBlock("b"), "so")
    assert chat_body(ask(model=thinker, messages=(turn,)))["messages"] == [{"role": "assistant", "content": "so", field: value}]


def test_the_texts_of_an_answer_do_not_run_into_one_another() -> None:
    """Each ends where its words do: thoughts, or a call, stood between them."""
    turn = answer("I look.", base.ReasoningBlock("hm"), "", "Then", "more")
    assert chat_body(ask(messages=(turn,)))["messages"] == [{"role": "assistant", "content": "I look.\nThen\nmore"}]


def test_models_of_one_system_message_are_sent_one() -> None:
    """A second one is refused by the chat template of Qwen 3.5, as vLLM and llama.cpp run it."""
    for body_of, name in ((chat_body, "messages"), (responses_body, "input")):
        said, system = body_of(ask(system=("a", "", "b"), messages=(user("hi"),)))[name][::-1]
        assert system == {"role": "system", "content": "a\n\nb"} and said["role"] == "user"
        [only] = body_of(ask(system=("",), messages=(user("hi"),)))[name]
        assert only["role"] == "user"


def test_cache_marks_for_claude_in_the_chat_format() -> None:
    turns = (user("old"), *called(), user("new"))
    body = chat_body(ask(model=model("anthropic/claude-sonnet-4.5"), system=("a", "b", "c"), messages=turns))
    first, second, third, old, asked, result, new = body["messages"]
    for message, role, text in ((first, "system", "a"), (second, "system", "b"), (new, "user", "new")):
        assert message == {"role": role, "content": [{"type": "text", "text": text, **MARK}]}
    assert (third, old) == ({"role": "system", "content": "c"}, {"role": "user", "content": "old"})
    assert "cache_control" not in asked and result == {"role": "tool", "tool_call_id": "c", "content": "x", **MARK}


def input_of(*blocks: Any, **options: Any) -> dict[str, Any]:
    return responses_body(ask(model=reasoning_model("gpt-5"), messages=(answer(*blocks),), options=options))


def test_what_is_stored_there_is_named_by_its_id() -> None:
    thoughts = [base.ReasoningBlock(text, facts("rs_1")) for text in "ab"]
    body = input_of(*thoughts, base.TextBlock("t", facts("msg_1")), store=True)
    assert body["store"] is True and "include" not in body
    stored = {"role": "assistant", "content": [{"type": "output_text", "text": "t"}], "id": "msg_1"}
    assert body["input"] == [{"type": "item_reference", "id": "rs_1"}, stored]
    assert input_of(thoughts[0], "t")["input"] == [{"role": "assistant", "content": [{"type": "output_text", "text": "t"}]}]


def test_a_model_that_does_not_reason_is_not_asked_for_reasoning() -> None:
    body = responses_body(ask(model=model("gpt-4o"), system=("s",)))
    assert "include" not in body and body["input"][0]["role"] == "system"


@pytest.mark.parametrize(("base_url", "path"), [("/v1", ""), ("/v1/", ""), ("", ""), ("/", ""), ("/anthropic/v1", "/anthropic")])
async def test_a_base_url_with_or_without_its_version(server: FakeServer, base_url: str, path: str) -> None:
    headers = {"anthropic-beta": "x"}
    await events_of(adapter(server, "messages", base_url=f"http://127.0.0.1:{server.port}{base_url}", headers=headers))
    asked = server.received[0]
    assert asked.path == f"{path}/v1/messages" and "authorization" not in asked.headers
    names = ("x-api-key", "anthropic-version", "anthropic-beta")
    assert [asked.headers[name] for name in names] == ["key", "2023-06-01", "x"]


def anthropic(*turns: base.ModelMessage, **fields: Any) -> dict[str, Any]:
    return anthropic_body(ask(**{"model": SONNET, "messages": turns or (user("hi"),), **fields}))


def test_nothing_empty_is_sent_but_redacted_reasoning() -> None:
    empty, redacted = answer("", base.ReasoningBlock("")), answer(base.ReasoningBlock("", SEALED))
    body = anthropic(user("", "hi"), empty, redacted, user(""), user("go on"), system=("a", " "))
    blocks = [[(block["type"], block.get("text")) for block in message["content"]] for message in body["messages"]]
    assert blocks == [[("text", "hi")], [("redacted_thinking", None)], [("text", "go on")]] and len(body["system"]) == 1


@pytest.mark.parametrize(
    ("thinking", "named"),
    [
        *((odd, "thinking") for odd in ("on", True, [])),
        *(({"type": "enabled", "budgetTokens": odd}, "thinking.budgetTokens") for odd in (None, "many")),
        ({"type": "enabled", "budget_tokens": True}, "thinking.budget_tokens"),
    ],
)
def test_an_option_that_cannot_be_sent_is_named(thinking: Any, named: str) -> None:
    with pytest.raises(base.UnusableOption, match=f"`{named}`.*configuration"):
        anthropic(options={"thinking": thinking})


THINKING = {"thinking": {"type": "enabled", "budgetTokens": 16_000}}
FITTING = [
    (64_000, 16_000, 48_000),
    (40_000, 16_000, 40_000),
    (16_001, 16_000, 16_001),
    (16_000, 8_000, 16_000),
    (0, 16_000, 32_000),
]


@pytest.mark.parametrize(("output", "budget", "most"), FITTING)
def test_thinking_and_the_answer_fit_the_limit_together(output: int, budget: int, most: int) -> None:
    claude, asked = model("claude", limit=limit(output)), min(output or 32_000, 32_000)
    body = anthropic(model=claude, max_output_tokens=asked, temperature=1.0, options=THINKING)
    assert body["thinking"] == {"type": "enabled", "budget_tokens": budget} and body["max_tokens"] == most
    assert "temperature" not in body
    assert anthropic(model=claude)["max_tokens"] == asked, "without thinking, when no limit is asked for"
    assert anthropic(max_output_tokens=60_000, options=THINKING)["max_tokens"] == 64_000


def test_thinking_cannot_carry_a_cache_mark_and_the_last_word_is_the_user_s() -> None:
    turn = answer("so", base.ReasoningBlock("hm", SIGNED))
    _, said, last = anthropic(user("a"), turn)["messages"]
    assert said["content"] == [
        {"type": "text", "text": "so", **MARK},
        {"type": "thinking", "thinking": "hm", "signature": "sign"},
    ]
    assert last["role"] == "user"
