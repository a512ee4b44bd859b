"""The storage of OpenCode 1.0 and 1.1: a JSON file for each project, session, message and part."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.transfer.opencode.json_text import parse_json
from app.transfer.opencode.records import JsonObject, Problem, SourceMessage, SourceSession, ordered


class JsonFiles:
    """Reads JSON files, and notes those that cannot be read."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def objects(self, directory: Path) -> Iterator[tuple[Path, JsonObject]]:
        """Of the files in it, by name. None if there is no such directory."""
        for path in json_files(directory):
            value = self.value(path)
            if isinstance(value, dict):
                yield path, value
            elif value is not None:
                self.problems.append(Problem(str(path), "is no JSON object"))

    def value(self, path: Path) -> Any:
        """None if it is missing or cannot be read."""
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


class JsonStorage:
    """`root` is the directory `storage`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files = JsonFiles()
        self.problems = self._files.problems

    def projects(self) -> Iterator[JsonObject]:
        for path, project in self._files.objects(self._root / "project"):
            yield {**project, "id": path.stem}

    def sessions(self) -> list[SourceSession]:
        worktrees = {project["id"]: project.get("worktree") for project in self.projects()}
        return [
            SourceSession(str(path), {"projectID": directory.name, **info, "id": path.stem}, worktrees.get(directory.name))
            for directory in directories(self._root / "session")
            for path, info in self._files.objects(directory)
        ]

    def read(self, session: SourceSession) -> None:
        session_id = session.info["id"]
        session.messages = ordered([self._message(*found) for found in self._files.objects(self._root / "message" / session_id)])
        session.todos = self._files.list_of(self._root / "todo" / f"{session_id}.json")
        session.diffs = self._diffs(session)
        if "share" not in session.info and (share := self._share(session_id)):
            session.info["share"] = share

    def _message(self, path: Path, info: JsonObject) -> SourceMessage:
        directory = self._root / "part" / path.stem
        parts = [(str(file), {**part, "id": file.stem}) for file, part in self._files.objects(directory)]
        return SourceMessage(str(path), {**info, "id": path.stem}, parts)

    def _diffs(self, session: SourceSession) -> list[Any]:
        """Before OpenCode's second migration they were part of the session."""
        summary = session.info.get("summary")
        inline = summary.get("diffs") if isinstance(summary, dict) else None
        return inline or self._files.list_of(self._root / "session_diff" / f"{session.info['id']}.json")

    def _share(self, session_id: str) -> JsonObject | None:
        for directory in ("session_share", "share"):
            share = self._files.value(self._root / directory / f"{session_id}.json")
            if isinstance(share, dict) and isinstance(share.get("url"), str):
                return {"url": share["url"]}
        return None

    def orphans(self) -> list[Problem]:
        sessions = {path.stem for directory in directories(self._root / "session") for path in json_files(directory)}
        of_messages = directories(self._root / "message")
        messages = {path.stem for directory in of_messages for path in json_files(directory)}
        lost = [Problem(str(path), "messages without a session") for path in of_messages if path.name not in sessions]
        parts = directories(self._root / "part")
        return lost + [Problem(str(path), "parts without a message") for path in parts if path.name not in messages]


def json_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.json"))


def directories(directory: Path) -> list[Path]:
    return sorted(path for path in directory.glob("*") if path.is_dir())
