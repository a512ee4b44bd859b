"""The results of the readers of all layouts: values as the source has them, not validated; and the report of an import."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in the source that could not be read: `where` names a file, or a row of a database."""

    where: str
    reason: str


@dataclass(slots=True)
class SourceMessage:
    where: str
    info: JsonObject
    parts: list[tuple[str, JsonObject]] = field(default_factory=list)
    """Each with the place where it is stored."""


@dataclass(slots=True)
class SourceSession:
    """Messages in the order in which OpenCode shows them. `worktree`: of the session's project."""

    where: str
    info: JsonObject
    worktree: str | None = None
    messages: list[SourceMessage] = field(default_factory=list)
    todos: list[Any] = field(default_factory=list)
    diffs: list[Any] = field(default_factory=list)


class SourceReader(Protocol):
    """Reads one layout, and notes in `problems` what it cannot read."""

    problems: list[Problem]

    def projects(self) -> Iterable[JsonObject]: ...

    def sessions(self) -> list[SourceSession]:
        """All sessions without their messages."""
        ...

    def read(self, session: SourceSession) -> None:
        """Adds its messages, todos and diffs."""
        ...

    def orphans(self) -> list[Problem]:
        """Messages and parts that belong to nothing."""
        ...


def ordered(messages: list[SourceMessage]) -> list[SourceMessage]:
    """The messages in the order of OpenCode 1.2 and later; before, the id alone was the order."""
    return sorted(messages, key=lambda message: (created(message.info), str(message.info.get("id"))))


def created(info: JsonObject) -> int:
    """When a session or message was created; 0 if it does not say."""
    return number(info.get("time"), "created")


def number(value: Any, name: str) -> int:
    """The number of this name in an object; 0 if there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return int(found) if isinstance(found, int | float) else 0


class ImportOutcome(StrEnum):
    """The outcome for one session of the source."""

    IMPORTED = "imported"
    UPDATED = "updated: grown in OpenCode since the last import"
    UNCHANGED = "unchanged since the last import"
    CHANGED_HERE = "left alone: changed here and in OpenCode since the last import"
    DELETED_HERE = "left out: deleted here since the last import"
    EXISTS = "left alone: another session has the same id here"


@dataclass(slots=True)
class ImportReport:
    """`messages`: of the sessions that were imported and updated. `snapshots`: that were taken over; `missing_snapshots`: whose
    files the source no longer has."""

    outcomes: Counter[ImportOutcome] = field(default_factory=Counter)
    messages: int = 0
    snapshots: int = 0
    missing_snapshots: int = 0
    problems: list[Problem] = field(default_factory=list)

    def lines(self) -> list[str]:
        counts = [f"{self.outcomes[outcome]} sessions {outcome}" for outcome in ImportOutcome if self.outcomes[outcome]]
        lines = counts or ["0 sessions found"]
        lines.append(f"{self.messages} messages and {self.snapshots} snapshots imported")
        if self.missing_snapshots:
            lines.append(f"{self.missing_snapshots} snapshots are no longer there: reverts to them leave the files as they are")
        if self.problems:
            lines.append(f"{len(self.problems)} problems; what they concern was left out:")
        return lines + [f"  {problem.where}: {problem.reason}" for problem in self.problems]
