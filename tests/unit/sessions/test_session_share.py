"""A visitor sees the conversation by its link, and nothing that stands beside it."""

import json
from typing import Any

import pytest
from session_parts import assistant, text_part, user

from app.project.config.flags import Flags
from app.schema import part as schema
from app.schema.config import Config
from app.schema.errors import APIError, ApiErrorData
from app.schema.message import Message, MessageWithParts
from app.schema.part import CompletedTime, FilePart, Part, SourceText, Span, TextPart, ToolPart, ToolState
from app.schema.session import FileDiff, Revert
from app.sessions.share import may_share, shared_messages, shares_automatically

SECRET = "s3cret"
IDS: dict[str, Any] = {"id": "prt_1", "session_id": "ses_1", "message_id": "msg_1"}
SAID, DONE, MODEL = Span(start=1, end=2), CompletedTime(start=1, end=2), schema.ModelRef(provider_id="p", model_id="m")
FAILURE = APIError(data=ApiErrorData(message=SECRET, is_retryable=True))
SOURCE = schema.FileSource(text=SourceText(value="@a.txt", start=0, end=6), path=f"/{SECRET}/a.txt")


def shared(info: Message, *parts: Part) -> list[dict[str, Any]]:
    return [message.wire() for message in shared_messages([MessageWithParts(info=info, parts=list(parts))], None)]


def shown_parts(*parts: Part) -> list[dict[str, Any]]:
    return shared(assistant("msg_1", "msg_0"), *parts)[0]["parts"]


def tool(state: ToolState) -> ToolPart:
    return ToolPart(**IDS, call_id="call_1", tool="bash", state=state, metadata={"itemId": SECRET})


def completed(metadata: dict[str, Any], **fields: Any) -> ToolPart:
    return tool(schema.Completed(input={"command": "ls"}, output="a", title="List", metadata=metadata, time=DONE, **fields))


def test_a_prompt_keeps_its_words_and_not_its_instructions() -> None:
    diff = FileDiff(file="a", before="", after=SECRET, additions=1, deletions=0)
    prompt = user("msg_1", system=SECRET, tools={SECRET: True}, summary={"diffs": [diff]})
    (message,) = shared(prompt, text_part("prt_1", "Hello"))
    assert message["parts"][0]["text"] == "Hello" and message["info"]["agent"] == "build"
    assert SECRET not in json.dumps(message)


def test_an_answer_does_not_tell_where_it_ran_nor_what_the_provider_sent_with_an_error() -> None:
    sent: dict[str, Any] = {"response_headers": {"set-cookie": SECRET}, "response_body": SECRET, "metadata": {"url": SECRET}}
    data = ApiErrorData(message="Overloaded", status_code=529, is_retryable=True, **sent)
    (message,) = shared(assistant("msg_1", "msg_0", error=APIError(data=data)))
    assert message["info"]["path"] == {"cwd": "", "root": ""}
    assert message["info"]["error"]["data"] == {"message": "Overloaded", "statusCode": 529, "isRetryable": True}


@pytest.mark.parametrize(
    "part",
    [
        TextPart(**IDS, text=SECRET, synthetic=True),
        schema.StepStartPart(**IDS, snapshot=SECRET),
        schema.StepFinishPart(**IDS, reason="stop", snapshot=SECRET, cost=0, tokens=schema.Tokens()),
        schema.SnapshotPart(**IDS, snapshot=SECRET),
        schema.PatchPart(**IDS, hash=SECRET, files=["/home/me/a.txt"]),
        schema.RetryPart(**IDS, attempt=1, error=FAILURE, time=schema.RetryTime(created=1)),
    ],
)
def test_what_is_no_part_of_the_conversation_is_left_out(part: Part) -> None:
    assert shown_parts(part) == []
    assert shared(user("msg_1"), part) == []


@pytest.mark.parametrize(
    "part",
    [
        schema.SubtaskPart(**IDS, prompt="Look", description="look", agent="explore", model=MODEL),
        schema.CompactionPart(**IDS, auto=True),
        TextPart(**IDS, text="Hello", time=SAID),
        schema.ReasoningPart(**IDS, text="Hm.", time=SAID),
        schema.AgentPart(**IDS, name="explore"),
        FilePart(**IDS, mime="image/png", filename="a.png", url="data:image/png;base64,AA=="),
    ],
)
def test_what_is_said_is_shown_as_it_is(part: Part) -> None:
    assert shown_parts(part) == [part.wire()]


@pytest.mark.parametrize(
    "part",
    [
        TextPart(**IDS, text="x", metadata={"openai": SECRET}),
        schema.ReasoningPart(**IDS, text="x", time=SAID, metadata={"encrypted": SECRET}),
        schema.AgentPart(**IDS, name="explore", source=SourceText(value=SECRET, start=0, end=1)),
        FilePart(**IDS, mime="text/plain", filename="a.txt", url=f"file:///{SECRET}/a.txt"),
        FilePart(**IDS, mime="text/plain", url="data:,x", source=SOURCE),
        tool(schema.Running(input={}, metadata={"sessionId": SECRET}, time=schema.Started(start=1))),
        tool(schema.Failed(input={}, error="", metadata={"plugin": SECRET}, time=schema.Ended(start=1, end=2))),
        completed({"outputPath": SECRET}),
        completed({}, attachments=[FilePart(**IDS, mime="image/png", url=f"file:///{SECRET}.png")]),
    ],
)
def test_what_providers_tools_and_places_add_is_left_out(part: Part) -> None:
    (seen,) = shown_parts(part)
    assert seen["type"] == part.type and SECRET not in json.dumps(seen)


def test_a_tool_call_is_shown_with_what_clients_draw_of_it() -> None:
    call = completed({"output": "a.txt", "diff": "+a"})
    (seen, waiting) = shown_parts(call, tool(schema.Pending(input={"command": "ls"})))
    assert seen["state"] == call.state.wire() and waiting["state"]["status"] == "pending"


CONVERSATION = [
    MessageWithParts(info=user("msg_1"), parts=[text_part("prt_1")]),
    MessageWithParts(info=assistant("msg_2", "msg_1"), parts=[text_part("prt_2"), text_part("prt_3")]),
    MessageWithParts(info=user("msg_3"), parts=[text_part("prt_4")]),
]


@pytest.mark.parametrize(
    ("revert", "parts"),
    [
        (None, [["prt_1"], ["prt_2", "prt_3"], ["prt_4"]]),
        (Revert(message_id="msg_3"), [["prt_1"], ["prt_2", "prt_3"]]),
        (Revert(message_id="msg_1"), []),
        (Revert(message_id="msg_2", part_id="prt_3"), [["prt_1"], ["prt_2"]]),
        (Revert(message_id="msg_gone"), [["prt_1"], ["prt_2", "prt_3"], ["prt_4"]]),
    ],
)
def test_what_is_reverted_is_not_shown(revert: Revert | None, parts: list[list[str]]) -> None:
    seen = shared_messages(CONVERSATION, revert)
    assert [[part.id for part in message.parts] for message in seen] == parts


@pytest.mark.parametrize(
    ("config", "flags", "may", "by_itself"),
    [
        ({}, {}, True, False),
        ({"share": "manual"}, {}, True, False),
        ({"share": "auto"}, {}, True, True),
        ({"share": "disabled"}, {}, False, False),
        ({}, {"auto_share": True}, True, True),
        ({"share": "disabled"}, {"auto_share": True}, False, False),
        ({"share": "auto"}, {"disable_share": True}, False, False),
    ],
)
def test_what_configuration_and_flags_say(config: dict[str, str], flags: dict[str, bool], may: bool, by_itself: bool) -> None:
    given = Config.model_validate(config), Flags(**flags)
    assert (may_share(*given), shares_automatically(*given)) == (may, by_itself)
