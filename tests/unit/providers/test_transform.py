import pytest

from app.providers.base import (
    AssistantTurn,
    FileBlock,
    ModelMessage,
    ModelRequest,
    Npm,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
    ToolTurn,
    UnusableOption,
    UserTurn,
)
from app.providers.transform import gemini_schema, prepare, prepare_messages, prepare_tools
from app.schema.model import Capabilities, Modalities, Model, ModelApi

PNG = FileBlock("image/png", "data:image/png;base64,AAAA", "a.png")
PDF = FileBlock("application/pdf", "data:application/pdf;base64,AAAA", "a.pdf")
READ = ToolSpec("read", "reads", {"type": "object", "properties": {"n": {"type": "array"}}})


def model(model_id: str = "m", provider: str = "p", package: str = Npm.OPENAI_COMPATIBLE, **media: bool) -> Model:
    can = Capabilities(input=Modalities(**media))
    return Model(id=model_id, provider_id=provider, api=ModelApi(id=model_id, npm=package), name=model_id, capabilities=can)


def call(call_id: str) -> tuple[ModelMessage, ModelMessage]:
    return AssistantTurn((ToolCallBlock(call_id, "read", {}),)), ToolTurn((ToolResultBlock(call_id, "read", "x"),))


def ids_of(messages: tuple[ModelMessage, ...]) -> list[str]:
    return [
        block.call_id for message in messages for block in message.content if isinstance(block, ToolCallBlock | ToolResultBlock)
    ]


def test_media_that_the_model_takes_stays():
    messages = (UserTurn((TextBlock("look"), PNG)),)
    assert prepare_messages(model(image=True), messages) == messages


@pytest.mark.parametrize(
    ("file", "words"),
    [
        (PNG, '"a.png" cannot be read, because this model takes no image input'),
        (PDF, '"a.pdf" cannot be read, because this model takes no pdf input'),
        (FileBlock("audio/wav", "data:,x"), "this audio cannot be read"),
        (FileBlock("video/mp4", "https://x/v.mp4"), "this video cannot be read"),
    ],
)
def test_media_that_it_does_not_take_becomes_a_sentence(file, words):
    [message] = prepare_messages(model(), (UserTurn((file,)),))
    [block] = message.content
    assert isinstance(block, TextBlock)
    assert words in block.text


def test_an_empty_image_becomes_a_sentence():
    [message] = prepare_messages(model(image=True), (UserTurn((FileBlock("image/png", "data:image/png;base64,"),)),))
    assert "empty or damaged" in message.content[0].text


def test_other_files_pass():
    messages = (UserTurn((FileBlock("text/csv", "data:text/csv;base64,AA"),)),)
    assert prepare_messages(model(), messages) == messages


@pytest.mark.parametrize(("said", "start"), [("Image read", "Image read\n\nERROR: "), ("", "ERROR: ")])
def test_a_picture_in_a_tool_result_becomes_a_sentence_too(said, start):
    result = ToolResultBlock("c", "read", said, files=(PNG, PDF))
    [message] = prepare_messages(model(pdf=True), (ToolTurn((result,)),))
    assert message.content[0].files == (PDF,)
    assert message.content[0].text.startswith(start)


def test_claude_gets_call_ids_that_it_accepts():
    for claude in (model("anthropic/claude-x"), model("minimax-m3", package=Npm.ANTHROPIC)):
        assert ids_of(prepare_messages(claude, call("functions.read:0"))) == ["functions_read_0"] * 2


def test_mistral_gets_nine_alphanumerics():
    assert ids_of(prepare_messages(model("mistral-large"), call("call_ab-12345678"))) == ["callab123"] * 2
    assert ids_of(prepare_messages(model("x", provider="mistral"), call("c1"))) == ["c10000000"] * 2


def test_mistral_ids_that_begin_alike_stay_apart():
    [first, first_result, second, second_result] = ids_of(
        prepare_messages(model("mistral"), (*call("toolu_01AAAAAAAAbc"), *call("toolu_01AAAAAAAAxyz")))
    )
    assert (first, second) == (first_result, second_result)
    assert first != second
    assert len(second) == 9 and second.isalnum()


def test_mistral_gets_a_filler_between_tool_results_and_the_user():
    messages = (*call("c"), UserTurn((TextBlock("next"),)))
    prepared = prepare_messages(model("mistral"), messages)
    assert [message.role for message in prepared] == ["assistant", "tool", "assistant", "user"]
    assert len(prepare_messages(model(), messages)) == 3


def test_a_litellm_proxy_gets_a_tool_when_the_history_has_calls():
    for proxied, options in ((model(provider="my-litellm"), {}), (model(), {"litellmProxy": True})):
        assert [tool.id for tool in prepare_tools(proxied, (), call("c"), options)] == ["_noop"]
        assert prepare_tools(proxied, (), (UserTurn((TextBlock("hi"),)),), options) == ()
        assert prepare_tools(proxied, (READ,), call("c"), options) == (READ,)
    assert prepare_tools(model(), (), call("c"), {}) == ()


def test_gemini_schemas():
    schema = {
        "type": "object",
        "properties": {
            "level": {"type": "integer", "enum": [1, 2]},
            "list": {"type": "array"},
            "nested": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "gone"]},
            "either": {"anyOf": [{"type": "array"}, {"type": "string", "enum": ["x"]}]},
        },
        "required": ["level", "missing"],
    }
    assert gemini_schema(schema) == {
        "type": "object",
        "properties": {
            "level": {"type": "string", "enum": ["1", "2"]},
            "list": {"type": "array", "items": {"type": "string"}},
            "nested": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            "either": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string", "enum": ["x"]}]},
        },
        "required": ["level"],
    }


def request(of: Model, **fields: object) -> ModelRequest:
    return ModelRequest(model=of, system=(), messages=(UserTurn((PNG,)),), session_id="s", tools=(READ,), **fields)


def test_google_gets_thinking_in_its_own_place_and_no_top_k():
    options = {"thinkingConfig": {"includeThoughts": True, "thinkingBudget": 16000}, "other": 1}
    prepared = prepare(request(model("gemini-2.5-pro", "google", Npm.GOOGLE, image=True), top_k=64, options=options))
    assert prepared.top_k is None
    assert prepared.options == {"other": 1, "extra_body": {"google": {"thinking_config": {"thinking_budget": 16000}}}}
    assert prepared.tools[0].parameters["properties"]["n"]["items"] == {"type": "string"}


def test_thinking_that_google_cannot_be_sent_is_named():
    with pytest.raises(UnusableOption, match="thinkingConfig"):
        prepare(request(model("gemini-2.5-pro", "google", Npm.GOOGLE), options={"thinkingConfig": "on"}))


def test_prepare_changes_messages_and_leaves_the_rest():
    asked = request(model(), top_k=5, options={"a": 1})
    prepared = prepare(asked)
    assert isinstance(prepared.messages[0].content[0], TextBlock)
    assert (prepared.top_k, prepared.options, prepared.tools, prepared.session_id) == (5, {"a": 1}, (READ,), "s")
    assert asked.messages[0].content == (PNG,)
