"""The vocabulary as it goes over the wire: golden JSON of every part and tool state, names, what is dropped and what refused."""

from typing import Any

import orjson
import pytest
from pydantic import TypeAdapter, ValidationError

from app.schema.errors import BadRequest, NotFound, SessionBusy
from app.schema.event import AnyEvent, EventSessionIdle, OfSession
from app.schema.message import MESSAGE, PromptInput
from app.schema.part import PART, PartInput
from app.schema.session import CreateInput, Session, SessionStatus

IDS = {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1"}
TOKENS = {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5}}
SOURCE = {"value": "@a", "start": 0, "end": 2}
RANGE = {"start": {"line": 1, "character": 2}, "end": {"line": 3, "character": 4}}

STATES: dict[str, dict[str, Any]] = {
    "pending": {"status": "pending", "input": {}, "raw": ""},
    "running": {"status": "running", "input": {"a": 1}, "title": "t", "metadata": {"x": []}, "time": {"start": 1}},
    "completed": {
        "status": "completed",
        "input": {"a": None},
        "output": "out",
        "title": "t",
        "metadata": {"nested": {"a": None}},
        "time": {"start": 1, "end": 2, "compacted": 3},
        "attachments": [{**IDS, "type": "file", "mime": "image/png", "filename": "a.png", "url": "data:image/png;base64,"}],
    },
    "error": {"status": "error", "input": {"a": 1}, "error": "no", "metadata": {}, "time": {"start": 1, "end": 2}},
}

ERRORS: list[dict[str, Any]] = [
    {"name": "ProviderAuthError", "data": {"message": "m", "providerID": "p"}},
    {"name": "UnknownError", "data": {"message": "m"}},
    {"name": "MessageOutputLengthError", "data": {}},
    {"name": "MessageAbortedError", "data": {"message": "m"}},
    {
        "name": "APIError",
        "data": {
            "message": "m",
            "statusCode": 429,
            "isRetryable": True,
            "responseHeaders": {"retry-after": "1"},
            "responseBody": "{}",
            "metadata": {"k": "v"},
        },
    },
]

PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "t", "synthetic": True, "ignored": False, "time": {"start": 1, "end": 2}, "metadata": {"k": 1}},
    {
        "type": "subtask",
        "prompt": "p",
        "description": "d",
        "agent": "a",
        "model": {"providerID": "x", "modelID": "y"},
        "command": "c",
    },
    {"type": "reasoning", "text": "t", "metadata": {"k": {"signature": "s"}}, "time": {"start": 1}},
    {
        "type": "file",
        "mime": "text/plain",
        "filename": "a.txt",
        "url": "file:///a.txt",
        "source": {"type": "file", "text": SOURCE, "path": "a.txt"},
    },
    {
        "type": "file",
        "mime": "text/plain",
        "url": "file:///a.py",
        "source": {"type": "symbol", "text": SOURCE, "path": "a.py", "range": RANGE, "name": "f", "kind": 12},
    },
    {
        "type": "file",
        "mime": "text/plain",
        "url": "x://y",
        "source": {"type": "resource", "text": SOURCE, "clientName": "c", "uri": "x://y"},
    },
    *({"type": "tool", "callID": "call_1", "tool": "bash", "state": state, "metadata": {"k": 1}} for state in STATES.values()),
    {"type": "step-start", "snapshot": "abc"},
    {"type": "step-finish", "reason": "stop", "snapshot": "abc", "cost": 0.25, "tokens": TOKENS},
    {"type": "snapshot", "snapshot": "abc"},
    {"type": "patch", "hash": "abc", "files": ["/d/a.txt"]},
    {"type": "agent", "name": "explore", "source": SOURCE},
    {"type": "retry", "attempt": 1, "error": ERRORS[-1], "time": {"created": 1}},
    {"type": "compaction", "auto": True},
]

MESSAGES: list[dict[str, Any]] = [
    {
        "id": "msg_1",
        "sessionID": "ses_1",
        "role": "user",
        "time": {"created": 1},
        "summary": {
            "title": "t",
            "body": "b",
            "diffs": [{"file": "a", "before": "", "after": "x", "additions": 1, "deletions": 0}],
        },
        "agent": "build",
        "model": {"providerID": "p", "modelID": "m", "variant": "high"},
        "system": "s",
        "tools": {"bash": False},
        "variant": "high",
    },
    *(
        {
            "id": "msg_2",
            "sessionID": "ses_1",
            "role": "assistant",
            "time": {"created": 1, "completed": 2},
            "error": error,
            "parentID": "msg_1",
            "modelID": "m",
            "providerID": "p",
            "mode": "build",
            "agent": "build",
            "path": {"cwd": "/d", "root": "/d"},
            "summary": True,
            "cost": 0.1,
            "tokens": TOKENS,
            "finish": "stop",
        }
        for error in ERRORS
    ),
]

SESSION: dict[str, Any] = {
    "id": "ses_1",
    "slug": "able-bay",
    "projectID": "p",
    "directory": "/d",
    "path": "sub",
    "cost": 0.5,
    "tokens": {"input": 1, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}},
    "parentID": "ses_0",
    "summary": {"additions": 1, "deletions": 2, "files": 3},
    "share": {"url": "https://x"},
    "title": "t",
    "version": "1",
    "time": {"created": 1, "updated": 2, "compacting": 3, "archived": 4.0},
    "permission": [{"permission": "bash", "pattern": "*", "action": "deny"}],
    "revert": {"messageID": "msg_1", "partID": "prt_1", "snapshot": "abc", "diff": "d"},
}


def label(value: dict[str, Any]) -> str:
    state = value.get("state", {}).get("status")
    return "-".join(filter(None, (str(value.get("type") or value.get("role") or value.get("name")), state)))


def both_ways(adapter: TypeAdapter[Any], golden: Any) -> None:
    """Read and written it is the same, as JSON and as a value."""
    value = adapter.validate_python(golden)
    assert value.wire() == golden
    assert adapter.validate_json(value.wire_json()) == value


@pytest.mark.parametrize("golden", PARTS, ids=label)
def test_parts(golden: dict[str, Any]) -> None:
    both_ways(PART, {**IDS, **golden})


def test_the_twelve_types_of_part_are_all_here() -> None:
    assert len({golden["type"] for golden in PARTS}) == 12


@pytest.mark.parametrize("golden", MESSAGES, ids=label)
def test_messages(golden: dict[str, Any]) -> None:
    both_ways(MESSAGE, golden)


def test_a_session() -> None:
    both_ways(TypeAdapter(Session), SESSION)


@pytest.mark.parametrize(
    "golden", [{"type": "idle"}, {"type": "busy"}, {"type": "retry", "attempt": 1, "message": "m", "next": 5}], ids=label
)
def test_statuses(golden: dict[str, Any]) -> None:
    both_ways(TypeAdapter(SessionStatus), golden)


@pytest.mark.parametrize(
    ("event", "properties"),
    [
        ("server.connected", {}),
        ("session.created", {"sessionID": "ses_1", "info": SESSION}),
        ("session.idle", {"sessionID": "ses_1"}),
        ("session.error", {"sessionID": "ses_1", "error": ERRORS[1]}),
        ("message.updated", {"sessionID": "ses_1", "info": MESSAGES[0]}),
        ("message.part.updated", {"sessionID": "ses_1", "part": {**IDS, **PARTS[0]}, "delta": "t", "time": 7}),
        ("message.part.delta", {**IDS, "id": None, "partID": "prt_1", "partType": "text", "field": "text", "delta": "t"}),
        ("message.part.removed", {"sessionID": "ses_1", "messageID": "msg_1", "partID": "prt_1"}),
    ],
)
def test_events(event: str, properties: dict[str, Any]) -> None:
    golden = {"type": event, "properties": {key: value for key, value in properties.items() if value is not None}}
    both_ways(TypeAdapter(AnyEvent), golden)


def test_unknown_keys_are_dropped_at_every_depth() -> None:
    sent = {**IDS, "type": "text", "text": "t", "extra": 1, "time": {"start": 1, "extra": 2}}
    assert PART.validate_python(sent).wire() == {**IDS, "type": "text", "text": "t", "time": {"start": 1}}
    assert CreateInput.model_validate({"title": "t", "nope": 1}).wire() == {"title": "t"}


def test_what_people_put_into_metadata_is_kept_as_it_is() -> None:
    metadata = {"session_id": 1, "nothing": None, "deep": [{"a": None}]}
    sent = {**IDS, "type": "text", "text": "t", "metadata": metadata}
    assert PART.validate_python(sent).wire()["metadata"] == metadata


@pytest.mark.parametrize(
    "wrong",
    [
        {**IDS, "type": "picture"},
        {**IDS, "text": "no type"},
        {**IDS, "type": "text"},
        {**IDS, "type": "tool", "callID": "c", "tool": "t", "state": {"status": "done"}},
        {"type": "text", "text": "no ids"},
    ],
)
def test_what_is_no_part_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PART.validate_python(wrong)


def test_a_prompt_may_carry_four_types_of_part() -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(PartInput)
    carried = set()
    for golden in PARTS:
        try:
            carried.add(adapter.validate_python(golden).type)
        except ValidationError:
            continue
    assert carried == {"text", "file", "agent", "subtask"}


@pytest.mark.parametrize(
    "wrong", [{}, {"parts": "text"}, {"parts": [{"type": "reasoning"}]}, {"parts": [], "messageID": "ses_1"}]
)
def test_what_is_no_prompt_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PromptInput.model_validate(wrong)


def test_errors_of_requests_know_their_name_and_status() -> None:
    assert (NotFound.status, NotFound("m").body()) == (404, {"name": "NotFoundError", "data": {"message": "m"}})
    busy = SessionBusy("ses_1")
    assert (busy.status, busy.body()["name"], busy.body()["data"]["sessionID"]) == (409, "SessionBusyError", "ses_1")
    body = BadRequest("wrong", ["field"], {"field": 1}).body()
    issues = [{"code": "custom", "path": ["field"], "message": "wrong"}]
    data = {"message": 'wrong\n  at ["field"]', "received": {"field": 1}}
    assert body == {"name": "BadRequest", "data": data, "errors": issues, "error": issues, "success": False}


def test_an_event_is_announced_alike_as_a_value_and_around_properties_that_are_json() -> None:
    idle = EventSessionIdle(properties=OfSession(session_id="ses_1"))
    assert EventSessionIdle.of_json(sessionID=orjson.Fragment(b'"ses_1"')).wire_json() == idle.wire_json()
    assert TypeAdapter(AnyEvent).validate_json(idle.wire_json()) == idle
