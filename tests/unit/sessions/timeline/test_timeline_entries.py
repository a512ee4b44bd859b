"""What a stored message becomes in the second API."""

from typing import Any

from app.schema.message import MessageWithParts
from app.schema.timeline import SessionMessage
from app.sessions.timeline.entries import entry

IDS = {"sessionID": "ses_1"}
MODEL = {"providerID": "acme", "modelID": "big"}


def user(*parts: dict[str, Any], message_id: str = "msg_u") -> MessageWithParts:
    info = {"id": message_id, **IDS, "role": "user", "time": {"created": 1}, "agent": "build", "model": MODEL}
    return read(info, parts)


def assistant(*parts: dict[str, Any], message_id: str = "msg_a", ended: bool = True, **fields: Any) -> MessageWithParts:
    time = {"created": 2, "completed": 9} if ended else {"created": 2}
    finish = {"finish": "stop"} if ended else {}
    info = {"id": message_id, **IDS, "role": "assistant", "time": time, "parentID": "msg_u", "mode": "build", "agent": "build"}
    return read({**info, **MODEL, "path": {"cwd": "/w", "root": "/w"}, **finish, **fields}, parts)


def read(info: dict[str, Any], parts: tuple[dict[str, Any], ...]) -> MessageWithParts:
    of = {**IDS, "messageID": info["id"]}
    numbered = [{"id": f"prt_{number}", **of, **part} for number, part in enumerate(parts)]
    return MessageWithParts.model_validate({"info": info, "parts": numbered})


def text(value: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **fields}


def tool(status: str, name: str = "read", **state: Any) -> dict[str, Any]:
    return {"type": "tool", "callID": "call_1", "tool": name, "state": {"status": status, "input": {"a": 1}, **state}}


def shown(message: SessionMessage | None) -> dict[str, Any]:
    assert message is not None
    return message.wire()


def test_what_the_server_says_in_the_users_place_is_synthetic() -> None:
    found = shown(entry(user(text("Go on", synthetic=True))))
    assert (found["type"], found["text"], found["sessionID"]) == ("synthetic", "Go on", "ses_1")


def test_each_state_of_a_tool_call() -> None:
    calls = {
        "pending": tool("pending", raw='{"a"'),
        "running": tool("running", time={"start": 3}, metadata={"m": 1}),
        "completed": tool(
            "completed",
            output="out",
            title="t",
            metadata={"m": 1},
            time={"start": 3, "end": 4, "compacted": 5},
            attachments=[{"type": "file", "id": "prt_f", **IDS, "messageID": "msg_a", "mime": "image/png", "url": "data:x"}],
        ),
        "error": tool("error", error="no", time={"start": 3, "end": 4}),
    }
    found = {status: shown(entry(assistant({"type": "step-start"}, call)))["content"][0] for status, call in calls.items()}
    assert found["pending"]["state"] == {"status": "pending", "input": '{"a"'}
    assert found["running"]["state"] == {"status": "running", "input": {"a": 1}, "structured": {"m": 1}, "content": []}
    assert found["completed"]["state"]["content"] == [
        {"type": "text", "text": "out"},
        {"type": "file", "uri": "data:x", "mime": "image/png"},
    ]
    assert found["completed"]["time"] == {"created": 3, "ran": 3, "completed": 4, "pruned": 5}
    assert found["error"]["state"]["error"] == {"type": "unknown", "message": "no"}
    assert {call["id"] for call in found.values()} == {"call_1"}


def test_an_answer_has_its_snapshots_and_files() -> None:
    parts = (
        {"type": "step-start", "snapshot": "t1"},
        text("Hi", time={"start": 3, "end": 4}),
        {"type": "step-finish", "reason": "stop", "snapshot": "t2", "cost": 1, "tokens": {}},
        {"type": "patch", "hash": "t1", "files": ["/w/a"]},
    )
    found = shown(entry(assistant(*parts, cost=0.5)))
    assert found["snapshot"] == {"start": "t1", "end": "t2", "files": ["/w/a"]}
    assert (found["finish"], found["cost"]) == ("stop", 0.5)
    assert found["model"] == {"id": "big", "providerID": "acme", "variant": "default"}


def test_an_unfinished_answer_has_no_end_and_a_failed_one_its_error() -> None:
    unfinished = shown(entry(assistant(text("Hal", time={"start": 3}), ended=False)))
    assert not {"finish", "cost", "tokens", "error"} & unfinished.keys()
    failed = shown(entry(assistant(error={"name": "UnknownError", "data": {"message": "broken"}})))
    assert (failed["finish"], failed["error"]["message"]) == ("error", "broken")
    aborted = shown(entry(assistant(error={"name": "MessageOutputLengthError", "data": {}})))
    assert aborted["error"]["message"] == "MessageOutputLengthError"
