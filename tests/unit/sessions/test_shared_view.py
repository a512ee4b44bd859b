"""A visitor sees the conversation and nothing that stands beside it."""

import json
from typing import Any

import pytest
from session_parts import assistant, session, text_part, user

from app.schema.errors import APIError, ApiErrorData
from app.schema.message import Message, MessageWithParts
from app.schema.part import (
    AgentPart,
    CompactionPart,
    Completed,
    CompletedTime,
    Ended,
    Failed,
    FilePart,
    FileSource,
    ModelRef,
    Part,
    PatchPart,
    Pending,
    ReasoningPart,
    RetryPart,
    RetryTime,
    Running,
    SnapshotPart,
    SourceText,
    Span,
    Started,
    StepFinishPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    Tokens,
    ToolPart,
    ToolState,
)
from app.schema.permission import Rule
from app.schema.session import FileDiff, Revert
from app.sessions.share import shared_messages, shared_session

SECRET = "s3cret"
IDS: dict[str, Any] = {"id": "prt_1", "session_id": "ses_1", "message_id": "msg_1"}
NAMED = SourceText(value="@a.txt", start=0, end=6)


def shared(info: Message, *parts: Part, revert: Revert | None = None) -> list[dict[str, Any]]:
    return [message.wire() for message in shared_messages([MessageWithParts(info=info, parts=list(parts))], revert)]


def shown_parts(*parts: Part) -> list[dict[str, Any]]:
    answers = shared(assistant("msg_1", "msg_0"), *parts)
    found: list[dict[str, Any]] = answers[0]["parts"]
    return found


def tool(state: ToolState) -> ToolPart:
    return ToolPart(**IDS, call_id="call_1", tool="bash", state=state, metadata={"itemId": SECRET})


def test_a_session_tells_its_title_and_no_place() -> None:
    private = session(permission=[Rule(permission="bash", pattern=SECRET, action="allow")], revert=Revert(message_id="msg_1"))
    assert shared_session(private).wire() == {
        "id": "ses_1",
        "title": "T",
        "version": "1",
        "time": {"created": 1, "updated": 1},
    }


def test_a_prompt_keeps_its_words_and_not_its_instructions() -> None:
    prompt = user("msg_1", system=SECRET, tools={SECRET: True}, summary={"diffs": [diff(SECRET)]})
    (message,) = shared(prompt, text_part("prt_1", "Hello"))
    assert message["parts"][0]["text"] == "Hello" and message["info"]["agent"] == "build"
    assert SECRET not in json.dumps(message)


def diff(text: str) -> FileDiff:
    return FileDiff(file="a", before="", after=text, additions=1, deletions=0)


def test_an_answer_does_not_tell_where_it_ran_nor_what_the_provider_sent_with_an_error() -> None:
    data = ApiErrorData(
        message="Overloaded",
        status_code=529,
        is_retryable=True,
        response_headers={"set-cookie": SECRET},
        response_body=SECRET,
        metadata={"url": SECRET},
    )
    (message,) = shared(assistant("msg_1", "msg_0", error=APIError(data=data)))
    assert message["info"]["path"] == {"cwd": "", "root": ""}
    assert message["info"]["error"]["data"] == {"message": "Overloaded", "statusCode": 529, "isRetryable": True}


@pytest.mark.parametrize(
    "part",
    [
        TextPart(**IDS, text=SECRET, synthetic=True),
        StepStartPart(**IDS, snapshot=SECRET),
        StepFinishPart(**IDS, reason="stop", snapshot=SECRET, cost=0, tokens=Tokens()),
        SnapshotPart(**IDS, snapshot=SECRET),
        PatchPart(**IDS, hash=SECRET, files=["/home/me/a.txt"]),
        RetryPart(
            **IDS, attempt=1, error=APIError(data=ApiErrorData(message=SECRET, is_retryable=True)), time=RetryTime(created=1)
        ),
    ],
)
def test_what_is_no_part_of_the_conversation_is_left_out(part: Part) -> None:
    assert shown_parts(part) == []
    assert shared(user("msg_1"), part) == []


@pytest.mark.parametrize(
    "part",
    [
        SubtaskPart(**IDS, prompt="Look", description="look", agent="explore", model=ModelRef(provider_id="p", model_id="m")),
        CompactionPart(**IDS, auto=True),
        TextPart(**IDS, text="Hello", time=Span(start=1, end=2)),
        ReasoningPart(**IDS, text="Hm.", time=Span(start=1, end=2)),
        AgentPart(**IDS, name="explore"),
    ],
)
def test_what_is_said_is_shown_as_it_is(part: Part) -> None:
    assert shown_parts(part) == [part.wire()]


@pytest.mark.parametrize(
    "part",
    [
        TextPart(**IDS, text="x", metadata={"openai": SECRET}),
        ReasoningPart(**IDS, text="x", time=Span(start=1), metadata={"encrypted": SECRET}),
        AgentPart(**IDS, name="explore", source=SourceText(value=SECRET, start=0, end=1)),
        FilePart(**IDS, mime="text/plain", filename="a.txt", url=f"file:///{SECRET}/a.txt"),
        FilePart(**IDS, mime="text/plain", url="data:,x", source=FileSource(text=NAMED, path=f"/{SECRET}/a.txt")),
        tool(Running(input={}, metadata={"sessionId": SECRET}, time=Started(start=1))),
        tool(Completed(input={}, output="", title="", metadata={"outputPath": SECRET}, time=CompletedTime(start=1, end=2))),
        tool(Failed(input={}, error="", metadata={"plugin": SECRET}, time=Ended(start=1, end=2))),
        tool(
            Completed(
                input={},
                output="",
                title="",
                metadata={},
                time=CompletedTime(start=1, end=2),
                attachments=[FilePart(**IDS, mime="image/png", url=f"file:///{SECRET}.png")],
            )
        ),
    ],
)
def test_what_providers_tools_and_places_add_is_left_out(part: Part) -> None:
    (seen,) = shown_parts(part)
    assert seen["type"] == part.type and SECRET not in json.dumps(seen)


def test_an_image_that_came_with_the_prompt_is_shown() -> None:
    image = FilePart(**IDS, mime="image/png", filename="a.png", url="data:image/png;base64,AA==")
    assert shown_parts(image) == [image.wire()]


def test_a_tool_call_is_shown_with_what_clients_draw_of_it() -> None:
    state = Completed(
        input={"command": "ls"},
        output="a.txt",
        title="List",
        metadata={"output": "a.txt", "diff": "+a"},
        time=CompletedTime(start=1, end=2),
    )
    (seen,) = shown_parts(tool(state))
    assert seen["state"] == state.wire()
    (waiting,) = shown_parts(tool(Pending(input={"command": "ls"})))
    assert waiting["state"]["status"] == "pending"


def conversation() -> list[MessageWithParts]:
    return [
        MessageWithParts(info=user("msg_1"), parts=[text_part("prt_1", "one")]),
        MessageWithParts(
            info=assistant("msg_2", "msg_1"), parts=[text_part("prt_2", "a", "msg_2"), text_part("prt_3", "b", "msg_2")]
        ),
        MessageWithParts(info=user("msg_3"), parts=[text_part("prt_4", "two", "msg_3")]),
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
    seen = shared_messages(conversation(), revert)
    assert [[part.id for part in message.parts] for message in seen] == parts
