"""The storage before OpenCode 1.0: a directory for each project (`project/<name>/storage/session/…`). Messages may hold their
parts.

OpenCode's first migration copies these files into the later layout, with the first commit of the repository as the project's id.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from app.transfer.opencode.json_storage import JsonFiles, directories, json_files
from app.transfer.opencode.json_text import parse_json
from app.transfer.opencode.records import JsonObject, Problem, SourceMessage, SourceSession, ordered


class ProjectStorage:
    """`root` is the directory `project`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files = JsonFiles()
        self.problems = self._files.problems

    def projects(self) -> Iterator[JsonObject]:
        """Nothing is stored of them: a session's project is found by its directory."""
        return iter(())

    def sessions(self) -> list[SourceSession]:
        return [session for project in self._projects() for session in self._sessions(project)]

    def _sessions(self, project: Path) -> Iterator[SourceSession]:
        """A session does not name its directory, its answers do. One without answers is in the project's worktree."""
        worktree = _first_paths(project.glob("message/*/*.json")).get("root")
        for path, info in self._files.objects(project / "info"):
            directory = _first_paths((project / "message" / path.stem).glob("*.json")).get("cwd", worktree)
            yield SourceSession(str(path), {"directory": directory, **info, "id": path.stem}, worktree)

    def read(self, session: SourceSession) -> None:
        session_id = session.info["id"]
        project = Path(session.where).parents[1]
        found = self._files.objects(project / "message" / session_id)
        session.messages = ordered([self._message(project / "part" / session_id, *message) for message in found])
        session.todos = self._files.list_of(project / "todo" / f"{session_id}.json")

    def _message(self, parts: Path, path: Path, info: JsonObject) -> SourceMessage:
        stored = [(str(file), {**part, "id": file.stem}) for file, part in self._files.objects(parts / path.stem)]
        inline = info.pop("parts", None)
        if isinstance(inline, list):
            stored += [(str(path), _identified(part, path.stem, at)) for at, part in enumerate(inline) if isinstance(part, dict)]
        return SourceMessage(str(path), {**info, "id": path.stem}, stored)

    def orphans(self) -> list[Problem]:
        found: list[Problem] = []
        for project in self._projects():
            sessions = {path.stem for path in json_files(project / "info")}
            messages = {path.stem for each in directories(project / "message") for path in json_files(each)}
            lost = [each for each in directories(project / "message") if each.name not in sessions]
            found += [Problem(str(each), "messages without a session") for each in lost]
            parts = [each for session in directories(project / "part") for each in directories(session)]
            found += [Problem(str(each), "parts without a message") for each in parts if each.name not in messages]
        return found

    def _projects(self) -> list[Path]:
        return sorted(self._root.glob("*/storage/session"))


def _identified(part: JsonObject, message_id: str, position: int) -> JsonObject:
    """Parts within their message have no id of their own; a tool's is that of its call."""
    call = {"callID": part["id"]} if part.get("type") == "tool" and "id" in part and "callID" not in part else {}
    return {**part, **call, "id": f"prt_{message_id.removeprefix('msg_')}_{position:04}"}


def _first_paths(messages: Iterable[Path]) -> JsonObject:
    """`cwd` and `root` of the first answer among the messages."""
    return next(filter(None, map(_paths, messages)), {})


def _paths(path: Path) -> JsonObject | None:
    """`cwd` and `root` of an answer. Whether the file can be read at all is noted when its session is read."""
    try:
        paths = parse_json(path.read_bytes())["path"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return paths if isinstance(paths, dict) else None
