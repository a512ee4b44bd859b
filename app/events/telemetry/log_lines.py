"""The log of the server: plain text, or a JSON object a line, which names its session and trace, too."""

import logging
import os
import re
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Literal

import orjson

LogFormat = Literal["text", "json"]
LogThreshold = Literal["debug", "info", "warning", "error"]

SESSION_OF_LINES: ContextVar[str | None] = ContextVar("session_of_lines", default=None)
"""The session that this task, and the tasks that it starts, work on."""
DIRECTORY_OF_LINES: ContextVar[str | None] = ContextVar("directory_of_lines", default=None)
"""The directory that this task, and the tasks that it starts, work in."""

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CHATTY = ("httpx2", "httpcore2", "openai", "anthropic", "alembic")
"""Some of these write headers, and whole requests to models."""


def set_up_log(log_format: LogFormat, level: LogThreshold = "info") -> None:
    """Logs to standard error. A second call replaces the first."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else TextLines(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(log_format == "json")
    for name in _CHATTY:
        logging.getLogger(name).setLevel(logging.WARNING)


def format_of_environment() -> LogFormat:
    """Read before the other settings, which may be wrong."""
    named = [value for name, value in os.environ.items() if name.upper() == "OPENSESSION_LOG_FORMAT"]
    return "json" if named == ["json"] else "text"


def writes_json() -> bool:
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)


class TextLines(logging.Formatter):
    """With the session and the directory of a line, unless the line names them itself. Control characters are escaped: the name
    of a project's file could otherwise forge a line, or steer the terminal."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        line, about = super().formatMessage(record), (SESSION_OF_LINES.get(), DIRECTORY_OF_LINES.get())
        missing = [name for name in about if name is not None and name not in record.message]
        return _escaped(f"{line} ({', '.join(missing)})" if missing else line)

    def formatException(self, ei: Any) -> str:
        return "\n".join(f"  {_escaped(line)}" for line in super().formatException(ei).splitlines())


def _escaped(text: str) -> str:
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        traces = sys.modules.get("app.events.telemetry.traces")  # which is not imported where there are none
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "session_id": SESSION_OF_LINES.get(),
            "directory": DIRECTORY_OF_LINES.get(),
            **(traces.current_ids() if traces else {}),
            "exception": self.formatException(record.exc_info) if record.exc_info else None,
        }
        return orjson.dumps({name: value for name, value in line.items() if value is not None}, default=str).decode()
