"""The JSON files of OpenCode before 1.2: of 1.0 and 1.1, a file for each project, session, message and part; and of earlier
versions, a directory for each project (`project/<name>/storage/session/…`), where messages may contain their parts.

OpenCode's first migration copies the older files into the later layout, with the first commit of the repository as the project's
id.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.transfer.opencode.records import JsonObject, Problem, SourceMessage, SourceSession, ordered
from app.util.bounds import parse_json


class JsonFiles:
    """Reads JSON files, and notes those that cannot be read."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def objects(self, directory: Path) -> Iterator[tuple[Path, JsonObject]]:
        """The objects in a directory's files, by name; nothing if there is no such directory."""
        for path in json_files(directory):
            value = self.value(path)
            if isinstance(value, dict):
                yield path, value
            elif value is not None:
                self.problems.append(Problem(str(path), "is no JSON object"))

    def value(self, path: Path) -> Any:
        """None if the file is missing or cannot be read."""
        try:
            return parse_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self.problems.append(Problem(str(path), str(error)))
            return None

    def list_of(self, path: Path) -> list[Any]:
        value = self.value(path)
        if value is None or isinstance(value, list):
            return value or []
        self.problems.append(Problem(str(path), "is no JSON array"))
        return []

    def messages(self, directory: Path, parts_of: Callable[[str], Path]) -> list[SourceMessage]:
        """The messages of a session, each with its parts: of the message itself, and of the directory that `parts_of` names for
        it."""
        found = []
        for path, info in self.objects(directory):
            parts = [(str(file), {**part, "id": file.stem}) for file, part in self.objects(parts_of(path.stem))]
            inline = info.pop("parts", None)
            if isinstance(inline, list):
                parts += [
                    (str(path), _identified(part, path.stem, at)) for at, part in enumerate(inline) if isinstance(part, dict)
                ]
            found.append(SourceMessage(str(path), {**info, "id": path.stem}, parts))
        return ordered(found)


class JsonStorage(JsonFiles):
    """`root`: the directory `storage`."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root

    def projects(self) -> Iterator[JsonObject]:
        for path, project in self.objects(self._root / "project"):
            yield {**project, "id": path.stem}

    def sessions(self) -> list[SourceSession]:
        worktrees = {project["id"]: project.get("worktree") for project in self.projects()}
        return [
            SourceSession(str(path), {"projectID": directory.name, **info, "id": path.stem}, worktrees.get(directory.name))
            for directory in directories(self._root / "session")
            for path, info in self.objects(directory)
        ]

    def read(self, session: SourceSession) -> None:
        session_id = session.info["id"]
        session.messages = self.messages(self._root / "message" / session_id, lambda message: self._root / "part" / message)
        session.todos = self.list_of(self._root / "todo" / f"{session_id}.json")
        summary = session.info.get("summary")
        inline = summary.get("diffs") if isinstance(summary, dict) else None  # as before OpenCode's second migration
        session.diffs = inline or self.list_of(self._root / "session_diff" / f"{session_id}.json")
        if "share" not in session.info and (share := self._share(session_id)):
            session.info["share"] = share

    def _share(self, session_id: str) -> JsonObject | None:
        for directory in ("session_share", "share"):
            share = self.value(self._root / directory / f"{session_id}.json")
            if isinstance(share, dict) and isinstance(share.get("url"), str):
                return {"url": share["url"]}
        return None

    def orphans(self) -> list[Problem]:
        sessions = {path.stem for directory in directories(self._root / "session") for path in json_files(directory)}
        return _orphans(sessions, directories(self._root / "message"), directories(self._root / "part"))


class ProjectStorage(JsonFiles):
    """`root`: the directory `project`."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._projects = sorted(root.glob("*/storage/session"))

    def projects(self) -> Iterator[JsonObject]:
        """Yields nothing: a session's project is found by its directory."""
        return iter(())

    def sessions(self) -> list[SourceSession]:
        return [session for project in self._projects for session in self._sessions(project)]

    def _sessions(self, project: Path) -> Iterator[SourceSession]:
        """A session's answers name its directory. A session without answers is in the project's worktree."""
        worktree = _first_paths(project.glob("message/*/*.json")).get("root")
        for path, info in self.objects(project / "info"):
            directory = _first_paths((project / "message" / path.stem).glob("*.json")).get("cwd", worktree)
            yield SourceSession(str(path), {"directory": directory, **info, "id": path.stem}, worktree)

    def read(self, session: SourceSession) -> None:
        session_id, project = session.info["id"], Path(session.where).parents[1]
        parts = project / "part" / session_id
        session.messages = self.messages(project / "message" / session_id, lambda message: parts / message)
        session.todos = self.list_of(project / "todo" / f"{session_id}.json")

    def orphans(self) -> list[Problem]:
        found: list[Problem] = []
        for project in self._projects:
            parts = [each for session in directories(project / "part") for each in directories(session)]
            found += _orphans({path.stem for path in json_files(project / "info")}, directories(project / "message"), parts)
        return found


def json_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.json"))


def directories(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*") if path.is_dir())


def _orphans(sessions: set[str], of_messages: list[Path], of_parts: list[Path]) -> list[Problem]:
    """Directories of messages and of parts whose session or message is missing."""
    messages = {path.stem for directory in of_messages for path in json_files(directory)}
    lost = [Problem(str(path), "messages without a session") for path in of_messages if path.name not in sessions]
    return lost + [Problem(str(path), "parts without a message") for path in of_parts if path.name not in messages]


def _identified(part: JsonObject, message_id: str, position: int) -> JsonObject:
    """Parts within their message have no id of their own; a tool's gets that of its call."""
    call = {"callID": part["id"]} if part.get("type") == "tool" and "id" in part and "callID" not in part else {}
    return {**part, **call, "id": f"prt_{message_id.removeprefix('msg_')}_{position:04}"}


def _first_paths(messages: Iterable[Path]) -> JsonObject:
    """`cwd` and `root` of the first answer among the messages. A file that cannot be read is noted when its session is read."""
    for path in messages:
        with suppress(OSError, ValueError, LookupError, TypeError):
            paths = parse_json(path.read_bytes())["path"]
            if isinstance(paths, dict) and paths:
                return paths
    return {}
