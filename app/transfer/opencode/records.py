"""What the readers of every layout return: values as they are stored in the source, not validated."""

from collections.abc import Iterable
from dataclasses import dataclass, field
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
    """Each with where it is stored."""


@dataclass(slots=True)
class SourceSession:
    """Messages in the order in which OpenCode shows them. `worktree` is that of its project."""

    where: str
    info: JsonObject
    worktree: str | None = None
    messages: list[SourceMessage] = field(default_factory=list)
    todos: list[Any] = field(default_factory=list)
    diffs: list[Any] = field(default_factory=list)

    def forget_history(self) -> None:
        """Frees the memory of what a reader added."""
        self.messages, self.todos, self.diffs = [], [], []

    @property
    def created(self) -> float:
        return created(self.info)


class SourceReader(Protocol):
    """Reads one layout. What it cannot read goes to `problems`."""

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
    """As OpenCode 1.2 and later order them; before, it was the id alone."""
    return sorted(messages, key=lambda message: (created(message.info), str(message.info.get("id"))))


def created(info: JsonObject) -> float:
    """When a session or message was; 0 if it does not say."""
    time = info.get("time")
    when = time.get("created") if isinstance(time, dict) else None
    return when if isinstance(when, int | float) else 0
