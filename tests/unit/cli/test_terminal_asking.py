"""How a prompt ended, and what a typed line answers."""

import os
from typing import Any

import pytest
from terminal_events import ANSWER, IDLE, PROMPT, PROMPTED, SESSION, event, message

from app.api.client.prompt_outcome import PromptOutcome
from app.cli.prompt_run import answers_of, permission_texts, question_texts, read_line, reply_of


def outcome(*events: dict[str, Any]) -> PromptOutcome:
    found = PromptOutcome(SESSION, PROMPT)
    for each in events:
        found.note(each)
    return found


def finished(finish: str) -> dict[str, Any]:
    return message("assistant", ANSWER, finish=finish)


def failed(name: str) -> dict[str, Any]:
    return event("session.error", sessionID=SESSION, error={"name": name, "data": {}})


@pytest.mark.parametrize(
    ("events", "code"),
    [
        ([finished("stop")], 0),
        ([finished("tool-calls"), finished("stop")], 0),
        ([finished("tool-calls")], 1),
        ([failed("APIError")], 1),
        ([], 1),
        ([failed("MessageAbortedError")], 130),
    ],
)
def test_the_exit_code_is_how_the_turn_ended(events: list[dict[str, Any]], code: int) -> None:
    found = outcome(PROMPTED, *events, IDLE)
    assert found.is_known and found.exit_code == code


def test_what_came_before_the_prompt_is_not_about_it() -> None:
    assert not outcome(failed("APIError"), IDLE).is_known
    assert outcome(failed("APIError"), IDLE, PROMPTED, finished("stop"), IDLE).exit_code == 0


def test_other_sessions_do_not_end_it() -> None:
    assert not outcome(PROMPTED, event("session.idle", sessionID="ses_2")).is_known


def test_a_session_that_is_deleted_ends_it() -> None:
    found = outcome(PROMPTED, event("session.deleted", info={"id": SESSION}))
    assert found.is_known and found.exit_code == 1


@pytest.mark.parametrize(
    ("line", "reply"),
    [("y\n", "once"), ("Always\n", "always"), ("n\n", "reject"), ("", "reject"), ("\n", None), ("perhaps\n", None)],
)
def test_a_line_is_a_reply_or_none(line: str, reply: str | None) -> None:
    assert reply_of(line) == reply


def test_a_request_says_what_it_is_about_and_what_always_would_allow() -> None:
    request = {"permission": "bash", "patterns": ["rm a", "ls"], "always": ["rm *"]}
    assert [each.text for each in permission_texts(request)] == [
        "? May the agent do this: bash rm a, ls",
        "  y: once, a: always (always: rm *), n: no > ",
    ]


OPTIONS = [{"label": "red", "description": "warm"}, {"label": "blue", "description": ""}]


@pytest.mark.parametrize(
    ("question", "line", "answers"),
    [
        ({}, "2\n", ["blue"]),
        ({}, "red\n", ["red"]),
        ({}, "green, or so\n", ["green, or so"]),
        ({}, "\n", None),
        ({"custom": False}, "green\n", None),
        ({"custom": False}, "3\n", None),
        ({"multiple": True}, "1, 2\n", ["red", "blue"]),
    ],
)
def test_a_line_chooses_options(question: dict[str, Any], line: str, answers: list[str] | None) -> None:
    assert answers_of({"options": OPTIONS, **question}, line) == answers


def test_a_question_numbers_its_options() -> None:
    texts = [each.text for each in question_texts({"question": "Which?", "options": OPTIONS, "multiple": True})]
    assert texts == ["? Which?", "  1. red  warm", "  2. blue", "  a number, several with commas, or an answer of your own > "]


async def test_a_line_is_read_when_it_comes() -> None:
    reads, writes = os.pipe()
    os.write(writes, b"y\n")
    assert await read_line(reads) == "y\n"
    os.close(writes)
    assert await read_line(reads) == ""
    os.close(reads)
