"""The log of the server: plain text, or a JSON object a line with the session and the trace that it is about."""

import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

LogFormat = Literal["text", "json"]

SESSION_OF_LINES: ContextVar[str | None] = ContextVar("session_of_lines", default=None)
"""The session that this task, and the tasks that it starts, work on."""

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CHATTY = ("httpx", "httpx2", "alembic")


def set_up_log(log_format: LogFormat) -> None:
    """To standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "session_id": SESSION_OF_LINES.get(),
            **_trace_ids(),
            "exception": self.formatException(record.exc_info) if record.exc_info else None,
        }
        return orjson.dumps({name: value for name, value in line.items() if value is not None}, default=str).decode()


def _trace_ids() -> dict[str, str]:
    """Nothing is imported for it: without traces there are none."""
    traces = sys.modules.get("app.telemetry.traces")
    return traces.current_ids() if traces else {}
