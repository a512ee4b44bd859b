"""OpenCode's data directory: where it is, what to read in it, and the SQLite database of OpenCode 1.2 and later (`opencode.db`).

A database is copied and the copy is read: SQLite writes to the files of a database in WAL mode even to read it.
"""

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app.transfer.opencode.files import JsonFiles, JsonStorage, ProjectStorage
from app.transfer.opencode.records import JsonObject, Problem, SourceMessage, SourceReader, SourceSession
from app.util.bounds import parse_json

_COPIES = 50
_PAUSE_SECONDS = 0.1
_WAL_HEADER_BYTES = 32

_SESSION_FIELDS = {
    "slug": "slug",
    "project_id": "projectID",
    "directory": "directory",
    "path": "path",
    "parent_id": "parentID",
    "title": "title",
    "version": "version",
    "agent": "agent",
}
_SESSION_TIMES = ("created", "updated", "compacting", "archived")
_SESSION_JSON = ("revert", "permission", "model", "metadata")


class DatabaseInUse(OSError):
    """The database changed during every copy."""


class NewerOpenCode(Exception):
    """OpenCode 2 keeps its sessions elsewhere, as the message says."""


class DatabaseStorage:
    """`storage` is the directory in which OpenCode keeps sessions' diffs beside the database."""

    def __init__(self, path: Path, storage: Path, scratch: Path) -> None:
        """Copies the database to the directory `scratch`. Raises OSError."""
        self._path = path
        self._storage = storage
        self._files = JsonFiles()
        self.problems = self._files.problems
        self._connection = sqlite3.connect(copy_database(path, scratch), check_same_thread=False)
        self._connection.row_factory = sqlite3.Row
        self._connection.text_factory = lambda text: text.decode("utf-8", "replace")

    def close(self) -> None:
        self._connection.close()

    def require_current(self) -> None:
        """OpenCode 2 copies all sessions to other tables and goes on there: the older ones look complete but lack all later
        messages. Raises NewerOpenCode."""
        tables = {row["name"] for row in self._rows("sqlite_master", "SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "session_v2" not in tables:
            return
        moved = sum(row["count"] for row in self._rows("session_v2", "SELECT count(*) AS count FROM session_v2"))
        if moved or "session" not in tables:
            raise NewerOpenCode(
                f"{self._path} has been taken over by OpenCode 2, which keeps its {moved} sessions in tables that this version "
                "does not read; the older tables miss what came since. Nothing was imported. Name a copy of the directory from "
                "before OpenCode 2."
            )

    def projects(self) -> Iterator[JsonObject]:
        for row in self._rows("project", "SELECT * FROM project"):
            values = dict(row)
            icon = {"url": "icon_url", "override": "icon_url_override", "color": "icon_color"}
            project = {name: values.get(name) for name in ("id", "worktree", "vcs", "name")}
            project["icon"] = _present({name: values.get(column) for name, column in icon.items()}) or None
            project["time"] = _present({name: values.get(f"time_{name}") for name in ("created", "updated", "initialized")})
            project |= {name: self._json(f"project/{row['id']}", name, values.get(name)) for name in ("sandboxes", "commands")}
            yield _present(project)

    def sessions(self) -> list[SourceSession]:
        query = "SELECT session.*, project.worktree FROM session LEFT JOIN project ON project.id = session.project_id"
        return [self._session(dict(row)) for row in self._rows("session", query)]

    def _session(self, row: dict[str, Any]) -> SourceSession:
        where = f"session/{row['id']}"
        info: JsonObject = {"id": row["id"], **{name: row.get(column) for column, name in _SESSION_FIELDS.items()}}
        info |= {name: self._json(where, name, row.get(name)) for name in _SESSION_JSON}
        info["time"] = _present({name: row.get(f"time_{name}") for name in _SESSION_TIMES})
        info["share"] = {"url": row["share_url"]} if row.get("share_url") else None
        info["summary"] = self._summary(where, row)
        return SourceSession(self._where(where), _present(info), row["worktree"])

    def _summary(self, where: str, row: dict[str, Any]) -> JsonObject | None:
        counts = {name: row.get(f"summary_{name}") for name in ("additions", "deletions", "files")}
        if not _present(counts):
            return None
        diffs = self._json(where, "summary_diffs", row.get("summary_diffs"))
        return {**{name: count or 0 for name, count in counts.items()}, **_present({"diffs": diffs})}

    def read(self, session: SourceSession) -> None:
        session_id = session.info["id"]
        messages = {message.info["id"]: message for message in self._messages(session_id)}
        for row in self._rows(f"session/{session_id}", "SELECT * FROM part WHERE session_id = ? ORDER BY id", session_id):
            part = self._json(f"part/{row['id']}", "data", row["data"])
            if isinstance(part, dict) and row["message_id"] in messages:
                messages[row["message_id"]].parts.append((self._where(f"part/{row['id']}"), {**part, "id": row["id"]}))
        session.messages = list(messages.values())
        query = "SELECT content, status, priority FROM todo WHERE session_id = ? ORDER BY position"
        session.todos = [dict(row) for row in self._rows(f"session/{session_id}", query, session_id)]
        session.diffs = self._files.list_of(self._storage / "session_diff" / f"{session_id}.json")

    def _messages(self, session_id: str) -> Iterator[SourceMessage]:
        query = "SELECT * FROM message WHERE session_id = ? ORDER BY time_created, id"
        for row in self._rows(f"session/{session_id}", query, session_id):
            info = self._json(f"message/{row['id']}", "data", row["data"])
            if isinstance(info, dict):
                yield SourceMessage(self._where(f"message/{row['id']}"), {**info, "id": row["id"]})

    def orphans(self) -> list[Problem]:
        found = [*self._unread()]
        for table, owner in (("message", "session"), ("part", "message")):
            query = f"SELECT id FROM {table} WHERE {owner}_id NOT IN (SELECT id FROM {owner})"
            reason = f"a {table} without a {owner}"
            found += [Problem(self._where(f"{table}/{row['id']}"), reason) for row in self._rows(table, query)]
        return found

    def _unread(self) -> Iterator[Problem]:
        """Sessions that were prompted by OpenCode 1.18's second API, which stores their messages elsewhere."""
        table = self._rows("sqlite_master", "SELECT name FROM sqlite_master WHERE name = 'session_message'")
        query = "SELECT session_id, count(*) AS count FROM session_message GROUP BY session_id"
        for row in self._rows("session_message", query) if table else ():
            reason = f"{row['count']} messages of OpenCode's second API are not read"
            yield Problem(self._where(f"session/{row['session_id']}"), reason)

    def _rows(self, where: str, query: str, *values: str) -> list[Any]:
        try:
            return self._connection.execute(query, values).fetchall()
        except sqlite3.DatabaseError as error:
            self.problems.append(Problem(self._where(where), str(error)))
            return []

    def _json(self, where: str, column: str, text: str | None) -> Any:
        try:
            return None if text is None else parse_json(text)
        except ValueError as error:
            self.problems.append(Problem(self._where(where), f"{column}: {error}"))
            return None

    def _where(self, row: str) -> str:
        return f"{self._path}:{row}"


def _present(values: JsonObject) -> JsonObject:
    return {name: value for name, value in values.items() if value is not None}


def copy_database(path: Path, scratch: Path) -> Path:
    """Copies a database and its WAL as of one moment. Raises DatabaseInUse if there is none, OSError if it cannot be read."""
    target = scratch / path.name
    for _ in range(_COPIES):
        before = _state(path)
        shutil.copyfile(path, target)
        try:
            shutil.copyfile(_wal(path), _wal(target))
        except FileNotFoundError:
            _wal(target).unlink(missing_ok=True)
        if _state(path) == before:
            return target
        time.sleep(_PAUSE_SECONDS)
    raise DatabaseInUse(f"{path} is being written all the time: stop OpenCode, then try again.")


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _state(path: Path) -> tuple[int, int, bytes]:
    """Changes with a checkpoint, which alone writes to the database itself, and when the WAL begins anew. Data that is appended
    to the WAL meanwhile does no harm: a reader ignores an unfinished transaction at its end."""
    found = path.stat()
    try:
        with _wal(path).open("rb") as wal:
            header = wal.read(_WAL_HEADER_BYTES)
    except FileNotFoundError:
        header = b""
    return found.st_size, found.st_mtime_ns, header


class NoOpenCodeData(Exception):
    """The directory has no sessions of OpenCode. The message says what was looked for."""


@contextmanager
def readers_of(directory: Path) -> Iterator[list[SourceReader]]:
    """Readers for what the newest OpenCode that used the directory would show. Files that its migrations left behind are not
    read: they are out of date, and have sessions that were deleted since. Raises NoOpenCodeData, NewerOpenCode and OSError."""
    with ExitStack() as stack:
        databases = sorted(directory.glob("opencode*.db"))
        if databases:
            scratch = Path(stack.enter_context(TemporaryDirectory(prefix="opensession-import-")))
            found = [stack.enter_context(closing(DatabaseStorage(path, directory / "storage", scratch))) for path in databases]
            for reader in found:
                reader.require_current()
            yield [*found]
        else:
            yield _json_readers(directory)


def _json_readers(directory: Path) -> list[SourceReader]:
    storage, projects = directory / "storage", directory / "project"
    readers: list[SourceReader] = []
    if (storage / "session").is_dir():
        readers.append(JsonStorage(storage))
    if _migrations(storage) < 1 and any(projects.glob("*/storage/session")):
        readers.append(ProjectStorage(projects))
    if not readers:
        raise NoOpenCodeData(
            f"{directory} holds no sessions of OpenCode: there is neither opencode.db, nor storage/session, nor "
            "project/*/storage/session. Name the directory that `opencode debug paths` shows as data."
        )
    return readers


def _migrations(storage: Path) -> int:
    """How many of its migrations OpenCode has run; the first one copies `project/`."""
    try:
        return int((storage / "migration").read_text())
    except (OSError, ValueError):
        return 0
