"""What is changed of a request for the sake of the model that gets it."""

from typing import Any

import pytest
from fake_provider import ask, called, user
from fake_provider import model as plain_model

from app.providers import base
from app.providers.base import Npm
from app.providers.transform import gemini_schema, prepare, prepare_messages, prepare_tools
from app.schema.model import Capabilities, Modalities, Model

PNG = base.FileBlock("image/png", "data:image/png;base64,AAAA", "a.png")
PDF = base.FileBlock("application/pdf", "data:application/pdf;base64,AAAA", "a.pdf")
CSV = base.FileBlock("text/csv", "data:text/csv;base64,AA")
READ = base.ToolSpec("read", "reads", {"type": "object", "properties": {"n": {"type": "array"}}})


def model(id_: str = "m", provider: str = "p", npm: str = Npm.OPENAI_COMPATIBLE, **media: bool) -> Model:
    return plain_model(id_, provider=provider, npm=npm, capabilities=Capabilities(input=Modalities(**media)))


def ids_of(messages: tuple[base.ModelMessage, ...]) -> list[str]:
    kinds = base.ToolCallBlock | base.ToolResultBlock
    return [block.call_id for message in messages for block in message.content if isinstance(block, kinds)]


def test_media_that_the_model_takes_and_other_files_stay():
    for able, file in ((model(image=True), PNG), (model(), CSV)):
        assert prepare_messages(able, (user("look", file),)) == (user("look", file),)


@pytest.mark.parametrize(
    ("of", "file", "words"),
    [
        (model(), PNG, '"a.png" cannot be read, because this model takes no image input'),
        (model(), PDF, '"a.pdf" cannot be read, because this model takes no pdf input'),
        (model(), base.FileBlock("audio/wav", "data:,x"), "this audio cannot be read"),
        (model(), base.FileBlock("video/mp4", "https://x/v.mp4"), "this video cannot be read"),
        (model(image=True), base.FileBlock("image/png", "data:image/png;base64,"), "empty or damaged"),
    ],
)
def test_media_that_it_does_not_take_becomes_a_sentence(of, file, words):
    [message] = prepare_messages(of, (user(file),))
    [block] = message.content
    assert isinstance(block, base.TextBlock) and words in block.text


@pytest.mark.parametrize(("said", "start"), [("Image read", "Image read\n\nERROR: "), ("", "ERROR: ")])
def test_a_picture_in_a_tool_result_becomes_a_sentence_too(said, start):
    _, message = prepare_messages(model(pdf=True), called(text=said, files=(PNG, PDF)))
    assert message.content[0].files == (PDF,) and message.content[0].text.startswith(start)


@pytest.mark.parametrize(
    ("of", "call_id", "sent"),
    [
        (model("anthropic/claude-x"), "functions.read:0", "functions_read_0"),
        (model("minimax-m3", npm=Npm.ANTHROPIC), "functions.read:0", "functions_read_0"),
        (model("mistral-large"), "call_ab-12345678", "callab123"),
        (model("x", "mistral"), "c1", "c10000000"),
    ],
)
def test_claude_and_mistral_get_call_ids_that_they_accept(of, call_id, sent):
    assert ids_of(prepare_messages(of, called(call_id))) == [sent] * 2


def test_mistral_ids_that_begin_alike_stay_apart():
    calls = (*called("toolu_01AAAAAAAAbc"), *called("toolu_01AAAAAAAAxyz"))
    [first, first_result, second, second_result] = ids_of(prepare_messages(model("mistral"), calls))
    assert first == first_result != second == second_result and len(second) == 9 and second.isalnum()


def test_mistral_gets_a_filler_between_tool_results_and_the_user():
    messages = (*called(), user("next"))
    prepared = prepare_messages(model("mistral"), messages)
    assert [message.role for message in prepared] == ["assistant", "tool", "assistant", "user"]
    assert len(prepare_messages(model(), messages)) == 3


def test_a_litellm_proxy_gets_a_tool_when_the_history_has_calls():
    for proxied, options in ((model(provider="my-litellm"), {}), (model(), {"litellmProxy": True})):
        assert [tool.id for tool in prepare_tools(proxied, (), called(), options)] == ["_noop"]
        assert prepare_tools(proxied, (), (user("hi"),), options) == ()
        assert prepare_tools(proxied, (READ,), called(), options) == (READ,)
    assert prepare_tools(model(), (), called(), {}) == ()


def test_gemini_schemas():
    text, lists = {"type": "string", "enum": ["x"]}, {"type": "array", "items": {"type": "string"}}
    nested: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}

    def schema(level: dict[str, Any], a_list: dict[str, Any], *gone: str) -> dict[str, Any]:
        inner = {**nested, "required": ["a", *gone]}
        properties = {"level": level, "list": a_list, "nested": inner, "either": {"anyOf": [a_list, text]}}
        return {"type": "object", "properties": properties, "required": ["level", *gone]}

    written = schema({"type": "integer", "enum": [1, 2]}, {"type": "array"}, "gone")
    assert gemini_schema(written) == schema({"type": "string", "enum": ["1", "2"]}, lists)


def request(of: Model, **fields: Any) -> base.ModelRequest:
    return ask(model=of, messages=(user(PNG),), tools=(READ,), **fields)


def test_google_gets_thinking_in_its_own_place_and_no_top_k():
    options = {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": 16000}, "other": 1}
    prepared = prepare(request(model("gemini-2.5-pro", "google", Npm.GOOGLE, image=True), top_k=64, options=options))
    assert prepared.top_k is None
    assert prepared.options == {"other": 1, "extra_body": {"google": {"thinking_config": {"thinking_budget": 16000}}}}
    assert prepared.tools[0].parameters["properties"]["n"]["items"] == {"type": "string"}
    with pytest.raises(base.UnusableOption, match="thinkingConfig"):
        prepare(request(model("gemini-2.5-pro", "google", Npm.GOOGLE), options={"thinkingConfig": "on"}))


def test_prepare_changes_messages_and_leaves_the_rest():
    asked = request(model(), top_k=5, options={"a": 1})
    prepared = prepare(asked)
    assert isinstance(prepared.messages[0].content[0], base.TextBlock)
    assert (prepared.top_k, prepared.options, prepared.tools, prepared.session_id) == (5, {"a": 1}, (READ,), "ses_1")
    assert asked.messages[0].content == (PNG,)
