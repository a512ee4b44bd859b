"""The vocabulary as it goes over the wire: golden JSON of every part and tool state, names, and what is dropped."""

from typing import Any

import orjson
import pytest
from pydantic import TypeAdapter

from app.schema.event import AnyEvent, EventSessionIdle, OfSession
from app.schema.message import MESSAGE
from app.schema.part import PART
from app.schema.session import CreateInput, Session, SessionStatus

IDS = {"id": "prt_1", "sessionID": "ses_1", "messageID": "msg_1"}
TOKENS = {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5}}
SPAN = {"start": 1, "end": 2}
SOURCE = {"value": "@a", "start": 0, "end": 2}
RANGE = {"start": {"line": 1, "character": 2}, "end": {"line": 3, "character": 4}}
PICTURE = {**IDS, "type": "file", "mime": "image/png", "filename": "a.png", "url": "data:image/png;base64,"}
FILE = {"type": "file", "mime": "text/plain", "url": "file:///a.py"}
SYMBOL = {"type": "symbol", "text": SOURCE, "path": "a.py", "range": RANGE, "name": "f", "kind": 12}
COMPLETED = {"status": "completed", "input": {"a": None}, "output": "out", "title": "t", "metadata": {"nested": {"a": None}}}
TOOL = {"type": "tool", "callID": "call_1", "tool": "bash", "metadata": {"k": 1}}
MODEL = {"providerID": "x", "modelID": "y"}
API_ERROR = {"message": "m", "statusCode": 429, "isRetryable": True, "responseHeaders": {"retry-after": "1"}}

ERRORS: list[dict[str, Any]] = [
    {"name": "ProviderAuthError", "data": {"message": "m", "providerID": "p"}},
    {"name": "UnknownError", "data": {"message": "m"}},
    {"name": "MessageOutputLengthError", "data": {}},
    {"name": "MessageAbortedError", "data": {"message": "m"}},
    {"name": "APIError", "data": {**API_ERROR, "responseBody": "{}", "metadata": {"k": "v"}}},
]

PARTS: list[dict[str, Any]] = [
    {"type": "text", "text": "t", "synthetic": True, "ignored": False, "time": SPAN, "metadata": {"k": 1}},
    {"type": "subtask", "prompt": "p", "description": "d", "agent": "a", "model": MODEL, "command": "c"},
    {"type": "reasoning", "text": "t", "metadata": {"k": {"signature": "s"}}, "time": {"start": 1}},
    {**FILE, "filename": "a.txt", "source": {"type": "file", "text": SOURCE, "path": "a.txt"}},
    {**FILE, "source": SYMBOL},
    {**FILE, "source": {"type": "resource", "text": SOURCE, "clientName": "c", "uri": "x://y"}},
    {**TOOL, "state": {"status": "pending", "input": {}, "raw": ""}},
    {**TOOL, "state": {"status": "running", "input": {"a": 1}, "title": "t", "metadata": {"x": []}, "time": {"start": 1}}},
    {**TOOL, "state": {**COMPLETED, "time": {**SPAN, "compacted": 3}, "attachments": [PICTURE]}},
    {**TOOL, "state": {"status": "error", "input": {"a": 1}, "error": "no", "metadata": {}, "time": SPAN}},
    {"type": "step-start", "snapshot": "abc"},
    {"type": "step-finish", "reason": "stop", "snapshot": "abc", "cost": 0.25, "tokens": TOKENS},
    {"type": "snapshot", "snapshot": "abc"},
    {"type": "patch", "hash": "abc", "files": ["/d/a.txt"]},
    {"type": "agent", "name": "explore", "source": SOURCE},
    {"type": "retry", "attempt": 1, "error": ERRORS[-1], "time": {"created": 1}},
    {"type": "compaction", "auto": True},
]

USER_MESSAGE: dict[str, Any] = orjson.loads("""
{"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1}, "agent": "build", "system": "s",
 "summary": {"title": "t", "body": "b", "diffs": [{"file": "a", "before": "", "after": "x", "additions": 1, "deletions": 0}]},
 "model": {"providerID": "p", "modelID": "m", "variant": "high"}, "tools": {"bash": false}, "variant": "high"}
""")
ANSWER: dict[str, Any] = orjson.loads("""
{"id": "msg_2", "sessionID": "ses_1", "role": "assistant", "time": {"created": 1, "completed": 2}, "parentID": "msg_1",
 "modelID": "m", "providerID": "p", "mode": "build", "agent": "build", "path": {"cwd": "/d", "root": "/d"}, "summary": true,
 "cost": 0.1, "tokens": {"input": 1, "output": 2, "reasoning": 3, "cache": {"read": 4, "write": 5}}, "finish": "stop"}
""")
SESSION: dict[str, Any] = orjson.loads("""
{"id": "ses_1", "slug": "able-bay", "projectID": "p", "directory": "/d", "path": "sub", "parentID": "ses_0", "cost": 0.5,
 "tokens": {"input": 1, "output": 2, "reasoning": 0, "cache": {"read": 0, "write": 0}}, "title": "t", "version": "1",
 "summary": {"additions": 1, "deletions": 2, "files": 3}, "share": {"url": "https://x"},
 "time": {"created": 1, "updated": 2, "compacting": 3, "archived": 4.0},
 "permission": [{"permission": "bash", "pattern": "*", "action": "deny"}],
 "revert": {"messageID": "msg_1", "partID": "prt_1", "snapshot": "abc", "diff": "d"}}
""")


def event(kind: str, **properties: Any) -> dict[str, Any]:
    return {"type": kind, "properties": properties}


EVENTS = [
    event("server.connected"),
    event("session.created", sessionID="ses_1", info=SESSION),
    event("session.idle", sessionID="ses_1"),
    event("session.error", sessionID="ses_1", error=ERRORS[1]),
    event("message.updated", sessionID="ses_1", info=USER_MESSAGE),
    event("message.part.updated", sessionID="ses_1", part={**IDS, **PARTS[0]}, delta="t", time=7),
    event("message.part.delta", sessionID="ses_1", messageID="msg_1", partID="p", partType="text", field="text", delta="t"),
    event("message.part.removed", sessionID="ses_1", messageID="msg_1", partID="prt_1"),
]
STATUSES = [{"type": "idle"}, {"type": "busy"}, {"type": "retry", "attempt": 1, "message": "m", "next": 5}]
GOLDEN: list[tuple[Any, dict[str, Any]]] = [
    *((PART, {**IDS, **part}) for part in PARTS),
    *((MESSAGE, message) for message in (USER_MESSAGE, *(ANSWER | {"error": error} for error in ERRORS))),
    (TypeAdapter(Session), SESSION),
    *((TypeAdapter(SessionStatus), status) for status in STATUSES),
    *((TypeAdapter(AnyEvent), event) for event in EVENTS),
]


def label(value: Any) -> str | None:
    """What a golden value is an example of."""
    if not isinstance(value, dict):
        return ""
    kinds = (value.get("type"), value.get("role"), value.get("state", {}).get("status"), value.get("error", {}).get("name"))
    return "-".join(filter(None, kinds)) or "session"


@pytest.mark.parametrize(("adapter", "golden"), GOLDEN, ids=label)
def test_read_and_written_it_is_the_same_as_json_and_as_a_value(adapter: TypeAdapter[Any], golden: dict[str, Any]) -> None:
    value = adapter.validate_python(golden)
    assert value.wire() == golden
    assert adapter.validate_json(value.wire_json()) == value


def test_the_twelve_types_of_part_are_all_here() -> None:
    assert len({golden["type"] for golden in PARTS}) == 12


def test_unknown_keys_are_dropped_at_every_depth() -> None:
    sent = {**IDS, "type": "text", "text": "t", "extra": 1, "time": {"start": 1, "extra": 2}}
    assert PART.validate_python(sent).wire() == {**IDS, "type": "text", "text": "t", "time": {"start": 1}}
    assert CreateInput.model_validate({"title": "t", "nope": 1}).wire() == {"title": "t"}


def test_what_people_put_into_metadata_is_kept_as_it_is() -> None:
    metadata = {"session_id": 1, "nothing": None, "deep": [{"a": None}]}
    sent = {**IDS, "type": "text", "text": "t", "metadata": metadata}
    assert PART.validate_python(sent).wire()["metadata"] == metadata


def test_an_event_is_announced_alike_as_a_value_and_around_properties_that_are_json() -> None:
    idle = EventSessionIdle(properties=OfSession(session_id="ses_1"))
    assert EventSessionIdle.of_json(sessionID=orjson.Fragment(b'"ses_1"')).wire_json() == idle.wire_json()
    assert TypeAdapter(AnyEvent).validate_json(idle.wire_json()) == idle
