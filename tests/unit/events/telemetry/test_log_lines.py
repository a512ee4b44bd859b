"""Log lines as JSON: one line an event, whatever is in it."""

import json
import logging
import sys
from typing import Any

from app.events.telemetry.log_lines import SESSION_OF_LINES, JsonLines


def line(message: str, *arguments: Any, failed: bool = False) -> dict[str, Any]:
    info = sys.exc_info() if failed else None
    record = logging.LogRecord("app.turn.runs", logging.WARNING, __file__, 1, message, arguments, info)
    written = JsonLines().format(record)
    assert "\n" not in written
    found: dict[str, Any] = json.loads(written)
    return found


def test_a_line_says_when_where_and_what() -> None:
    found = line("%s is\nbroken", "it")
    assert found.pop("time").endswith("+00:00")
    assert found == {"level": "WARNING", "logger": "app.turn.runs", "message": "it is\nbroken"}


def test_a_line_names_its_session() -> None:
    token = SESSION_OF_LINES.set("ses_1")
    try:
        assert line("x")["session_id"] == "ses_1"
    finally:
        SESSION_OF_LINES.reset(token)
    assert "session_id" not in line("x")


def test_an_exception_stays_on_its_line() -> None:
    try:
        raise ValueError("it\nbroke")
    except ValueError:
        found = line("failed", failed=True)
    assert found["exception"].startswith("Traceback") and found["exception"].endswith("ValueError: it\nbroke")
