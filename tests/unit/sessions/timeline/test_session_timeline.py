"""What stored messages and recorded sequences of the journal become in the second API."""

from collections.abc import Callable
from typing import Any

import pytest
import session_parts
from session_parts import Sessions

from app.record.repositories.session_rows import PageBeside
from app.schema.message import AssistantTime, MessageWithParts
from app.sessions.timeline.entries import entries, entry
from app.sessions.timeline.events import LARGEST, JournalEvent, digest_of, event_number, happenings, place_of, translate
from app.sessions.timeline.service import Timeline

IDS = {"sessionID": "ses_1"}
MODEL = {"providerID": "acme", "modelID": "big"}
START = {"type": "step-start"}


def message(message_id: str, parts: tuple[dict[str, Any], ...], **info: Any) -> MessageWithParts:
    numbered = [{"id": f"prt_{number}", **IDS, "messageID": message_id, **part} for number, part in enumerate(parts)]
    return MessageWithParts.model_validate({"info": {"id": message_id, **IDS, "agent": "build", **info}, "parts": numbered})


def assistant(*parts: dict[str, Any], ended: bool = True, **fields: Any) -> MessageWithParts:
    end: dict[str, Any] = {"time": {"created": 2, "completed": 9}, "finish": "stop"} if ended else {"time": {"created": 2}}
    place = {"path": {"cwd": "/w", "root": "/w"}, "parentID": "msg_u", "mode": "build"}
    return message("msg_a", parts, role="assistant", **MODEL, **place, **end, **fields)


def text(value: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **fields}


def tool(status: str, **state: Any) -> dict[str, Any]:
    return {"type": "tool", "callID": "call_1", "tool": "read", "state": {"status": status, "input": {"a": 1}, **state}}


def shown(told: MessageWithParts) -> dict[str, Any]:
    found = entry(told)
    assert found is not None
    return found.wire()


def test_what_the_server_says_in_the_users_place_is_synthetic() -> None:
    found = shown(message("msg_u", (text("Go on", synthetic=True),), role="user", time={"created": 1}, model=MODEL))
    assert (found["type"], found["text"], found["sessionID"]) == ("synthetic", "Go on", "ses_1")


def test_each_state_of_a_tool_call() -> None:
    file = {"type": "file", "id": "prt_f", **IDS, "messageID": "msg_a", "mime": "image/png", "url": "data:x"}
    end = {"start": 3, "end": 4, "compacted": 5}
    calls = (
        tool("pending", raw='{"a"'),
        tool("running", time={"start": 3}, metadata={"m": 1}),
        tool("completed", output="out", title="t", metadata={"m": 1}, time=end, attachments=[file]),
        tool("error", error="no", time={"start": 3, "end": 4}),
    )
    found = [shown(assistant(START, call))["content"][0] for call in calls]
    pending, running, completed, error = (each["state"] for each in found)
    assert pending == {"status": "pending", "input": '{"a"'}
    assert running == {"status": "running", "input": {"a": 1}, "structured": {"m": 1}, "content": []}
    assert completed["content"] == [{"type": "text", "text": "out"}, {"type": "file", "uri": "data:x", "mime": "image/png"}]
    assert found[2]["time"] == {"created": 3, "ran": 3, "completed": 4, "pruned": 5}
    assert error["error"] == {"type": "unknown", "message": "no"} and {call["id"] for call in found} == {"call_1"}


def test_an_answer_has_its_snapshots_and_files() -> None:
    parts = (
        {**START, "snapshot": "t1"},
        text("Hi", time={"start": 3, "end": 4}),
        {"type": "step-finish", "reason": "stop", "snapshot": "t2", "cost": 1, "tokens": {}},
        {"type": "patch", "hash": "t1", "files": ["/w/a"]},
    )
    found = shown(assistant(*parts, cost=0.5))
    assert found["snapshot"] == {"start": "t1", "end": "t2", "files": ["/w/a"]}
    assert (found["finish"], found["cost"]) == ("stop", 0.5)
    assert found["model"] == {"id": "big", "providerID": "acme", "variant": "default"}


def test_an_unfinished_answer_has_no_end_and_a_failed_one_its_error() -> None:
    unfinished = shown(assistant(text("Hal", time={"start": 3}), ended=False))
    assert not {"finish", "cost", "tokens", "error"} & unfinished.keys()
    failed = shown(assistant(error={"name": "UnknownError", "data": {"message": "broken"}}))
    assert (failed["finish"], failed["error"]["message"]) == ("error", "broken")
    aborted = shown(assistant(error={"name": "MessageOutputLengthError", "data": {}}))
    assert aborted["error"]["message"] == "MessageOutputLengthError"


SAID, GONE = text("Hi", time={"start": 3, "end": 4}), text("Gone", time={"start": 3, "end": 4})


def updated(message: MessageWithParts) -> tuple[str, dict[str, Any]]:
    return "message.updated", {"info": message.info.wire()}


def part(message: MessageWithParts, at: int) -> tuple[str, dict[str, Any]]:
    return "message.part.updated", {"part": message.parts[at].wire()}


def told(messages: list[MessageWithParts], *journal: tuple[str, dict[str, Any]]) -> list[Any]:
    happened = {message.id: happenings(message) for message in entries(messages)}
    recorded = [JournalEvent(seq, 1000 + seq, kind, properties) for seq, (kind, properties) in enumerate(journal, start=1)]
    return translate("ses_1", happened, recorded)


def test_a_moment_is_told_once_with_a_number_that_names_it_and_of_what_was_removed_none() -> None:
    answer, withdrawn = assistant(START, SAID), assistant(START, SAID, GONE)
    [first, second] = told([answer], part(withdrawn, 1), part(answer, 1), part(withdrawn, 2))
    assert (first.type, second.type) == ("session.next.text.started", "session.next.text.ended")
    assert place_of(second.durable.seq) == (1, digest_of("prt_1", "session.next.text.ended"))
    assert told([], updated(assistant(SAID, ended=False)), updated(assistant(SAID))) == []


def test_a_pruned_output_is_not_told_again() -> None:
    pruned = tool("completed", output="out", title="t", metadata={}, time={"start": 3, "end": 4, "compacted": 5})
    answer = assistant(START, pruned)
    assert told([answer], part(answer, 1)) == []


def test_a_retry_says_why_and_events_of_this_api_go_through() -> None:
    status = {"type": "retry", "attempt": 2, "message": "slow down", "next": 9}
    states = [("session.status", {"sessionID": "ses_1", "status": each}) for each in ({"type": "busy"}, status)]
    switched = {"sessionID": "ses_1", "timestamp": 7, "messageID": "msg_s", "agent": "plan"}
    [retried, event] = told([], *states, ("session.next.agent.switched", switched))
    assert retried.type == "session.next.retried"
    assert (retried.data["attempt"], retried.data["error"]) == (2, {"message": "slow down", "isRetryable": True})
    assert (event.type, event.data["agent"], event.data["messageID"]) == ("session.next.agent.switched", "plan", "msg_s")


def test_numbers_are_those_that_javascript_can_count() -> None:
    assert event_number(2**31 - 1, 3, 2**20 - 1) == LARGEST
    assert place_of(17) == (0, 17)


@pytest.mark.parametrize("read_of", ["page", "message", "context"])
async def test_a_text_that_ends_while_it_is_read_is_shown_with_its_end(
    sessions: Sessions, monkeypatch: pytest.MonkeyPatch, read_of: str
) -> None:
    await sessions.put(session_parts.user("msg_1"), session_parts.assistant("msg_2", "msg_1", time=AssistantTime(created=1)))
    sessions.stream("prt_1", "Half", "msg_2")
    await sessions.store.barrier()
    read, ends = sessions.database.read, iter([True])

    async def slow(query: Callable[[Any], Any]) -> Any:
        if next(ends, False):
            await sessions.put(session_parts.text_part("prt_1", "Half and the rest", "msg_2"))
        return await read(query)

    monkeypatch.setattr(sessions.database, "read", slow)
    timeline = Timeline(sessions.store)
    found = {
        "page": lambda: timeline.page("ses_1", PageBeside(limit=10, newest_first=True)),
        "message": lambda: timeline.message("ses_1", "msg_2"),
        "context": lambda: timeline.context("ses_1"),
    }[read_of]
    assert "Half and the rest" in str(await found())
