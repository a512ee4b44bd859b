"""Recorded sequences of the journal, as events of the second API."""

from typing import Any

from test_timeline_entries import assistant, text, tool

from app.schema.message import MessageWithParts
from app.sessions.timeline.entries import entries
from app.sessions.timeline.events import LARGEST, JournalEvent, JournalTranslation, digest_of, event_number, happenings, place_of

SAID = text("Hi", time={"start": 3, "end": 4})


def updated(message: MessageWithParts, **fields: Any) -> tuple[str, dict[str, Any]]:
    return "message.updated", {"info": {**message.info.wire(), **fields}}


def begun(message: MessageWithParts) -> tuple[str, dict[str, Any]]:
    info = message.info.wire()
    del info["finish"], info["time"]["completed"]
    return "message.updated", {"info": info}


def part(message: MessageWithParts, at: int, **changes: Any) -> tuple[str, dict[str, Any]]:
    return "message.part.updated", {"part": {**message.parts[at].wire(), **changes}}


def running(message: MessageWithParts, at: int) -> tuple[str, dict[str, Any]]:
    return part(message, at, state={"status": "running", "input": {"a": 1}, "time": {"start": 3}})


def told(messages: list[MessageWithParts], *journal: tuple[str, dict[str, Any]]) -> list[Any]:
    happened = {message.id: happenings(message) for message in entries(messages)}
    recorded = [JournalEvent(seq, 1000 + seq, kind, properties) for seq, (kind, properties) in enumerate(journal, start=1)]
    return JournalTranslation("ses_1", happened).events(recorded)


def names(events: list[Any]) -> list[str]:
    return [event.type.removeprefix("session.next.") for event in events]


def test_what_was_removed_since_says_nothing() -> None:
    answer, withdrawn = assistant(SAID), assistant(SAID, text("Gone", time={"start": 3, "end": 4}))
    assert names(told([answer], part(withdrawn, 0), part(withdrawn, 1))) == ["text.started", "text.ended"]
    assert told([], begun(answer), updated(answer)) == []


def test_a_pruned_output_is_not_told_again() -> None:
    pruned = tool("completed", output="out", title="t", metadata={}, time={"start": 3, "end": 4, "compacted": 5})
    answer = assistant({"type": "step-start"}, pruned)
    assert told([answer], part(answer, 1)) == []


def test_a_moment_is_told_once_and_its_number_names_it() -> None:
    answer = assistant({"type": "step-start"}, SAID)
    [first, second] = told([answer], part(answer, 1), part(answer, 1))
    assert (first.type, second.type) == ("session.next.text.started", "session.next.text.ended")
    assert place_of(second.durable.seq) == (1, digest_of("prt_1", "session.next.text.ended"))


def test_a_retry_says_why() -> None:
    status = {"type": "retry", "attempt": 2, "message": "slow down", "next": 9}
    busy = ("session.status", {"sessionID": "ses_1", "status": {"type": "busy"}})
    [event] = told([], busy, ("session.status", {"sessionID": "ses_1", "status": status}))
    assert event.type == "session.next.retried"
    assert (event.data["attempt"], event.data["error"]) == (2, {"message": "slow down", "isRetryable": True})


def test_events_of_this_api_go_through() -> None:
    switched = {"sessionID": "ses_1", "timestamp": 7, "messageID": "msg_s", "agent": "plan"}
    [event] = told([], ("session.next.agent.switched", switched))
    assert (event.type, event.data["agent"], event.data["messageID"]) == ("session.next.agent.switched", "plan", "msg_s")


def test_numbers_are_those_that_javascript_can_count() -> None:
    largest = event_number(2**31 - 1, 3, 2**20 - 1)
    assert largest == LARGEST
    assert place_of(17) == (0, 17)
