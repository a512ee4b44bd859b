"""Who changed what: one line of JSON for every request that may write, and for every connection to a terminal, in `audit.log` in
the data directory; with several servers in a file for each.

A line stands there before the client hears its answer. Bodies and query strings are not in it, so that no secret is.
"""

import logging
import os
import time
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.schema.session import Session
from app.users.login import ANYONE
from app.util import clock

log = logging.getLogger(__name__)

FILE_BYTES = 10 * 1024 * 1024
OLD_FILES = 9
LONGEST_PATH = 500
WHO = "opensession.who"
"""Where in a request's scope its login is noted."""
CREATED = "opensession.created"
"""Where the route that makes a session notes its id."""
RETENTION = "retention"
_READING = ("GET", "HEAD", "OPTIONS")


class AuditLog:
    """At most OLD_FILES + 1 files of FILE_BYTES. Opened with the first line. `server`: the name of one of several that share the
    data directory, which cannot move each other's files."""

    def __init__(self, data_dir: Path, server: str | None = None) -> None:
        self._files = _RotatedFiles(data_dir / (f"audit-{server}.log" if server else "audit.log"))

    def write(self, entry: dict[str, Any]) -> None:
        """Logs a failure instead of raising: a full disk must not block other work."""
        line = orjson.dumps(entry, default=str, option=orjson.OPT_APPEND_NEWLINE)
        try:
            self._files.append(line)
        except OSError:
            log.warning("the audit log could not be written; its line: %s", line.decode())

    def write_pruned(self, session: Session) -> None:
        """A session that was deleted for its age."""
        path = f"/session/{session.id}"
        self.write({"time": clock.now_ms(), "who": RETENTION, "method": "DELETE", "path": path, "session": session.id})

    def close(self) -> None:
        self._files.close()


class _RotatedFiles(RotatingFileHandler):
    """The library's way of naming and moving files, without what a log record costs. They are readable by their owner alone."""

    _size = 0

    def __init__(self, path: Path) -> None:
        super().__init__(path, maxBytes=FILE_BYTES, backupCount=OLD_FILES, delay=True)

    def append(self, line: bytes) -> None:
        """Raises OSError."""
        file = self._file_for(len(line))
        self._size += len(line)
        file.write(line)
        file.flush()

    def _file_for(self, size: int) -> Any:
        if self.stream is not None and self._size + size > self.maxBytes:
            self.doRollover()
        if self.stream is None:
            file: Any = os.fdopen(os.open(self.baseFilename, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")
            self.stream, self._size = file, file.tell()
        return self.stream


class Audit:
    """Runs inside the guard: requests that the guard rejects have changed nothing."""

    def __init__(self, app: ASGIApp, audit_log: AuditLog) -> None:
        self._app = app
        self._log = audit_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._app(scope, receive, self._noting_acceptance(scope, send))
            return
        if scope["type"] != "http" or scope["method"] in _READING:
            await self._app(scope, receive, send)
            return
        began, answered = time.monotonic(), False

        async def noting(message: Message) -> None:
            nonlocal answered
            if message["type"] == "http.response.start":
                answered = True
                self._log.write(_entry(scope, message["status"], began))
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            if not answered:
                self._log.write(_entry(scope, 500, began))

    def _noting_acceptance(self, scope: Scope, send: Send) -> Send:
        """What is typed is not noted, only who may type."""
        began = time.monotonic()

        async def noting(message: Message) -> None:
            if message["type"] == "websocket.accept":
                self._log.write(_entry(scope, 101, began))
            await send(message)

        return noting


def _entry(scope: Scope, status: int, began: float) -> dict[str, Any]:
    parameters = scope.get("path_params") or {}
    client = scope.get("client")
    return {
        "time": clock.now_ms(),
        "who": scope.get(WHO, ANYONE),
        "from": client[0] if client else None,
        "method": scope.get("method", "GET"),
        "route": getattr(scope.get("route"), "path_format", None),
        "path": scope["path"][:LONGEST_PATH],
        "session": parameters.get("sessionID"),
        "created": scope.get(CREATED),
        "status": status,
        "ms": round((time.monotonic() - began) * 1000),
    }
