from collections.abc import Callable
from typing import Literal

from app.schema.base import Wire


class ProjectIcon(Wire):
    url: str | None = None
    override: str | None = None
    color: str | None = None


class ProjectCommands(Wire):
    start: str | None = None


class ProjectTime(Wire):
    created: int
    updated: int
    initialized: int | None = None


class ProjectDirectory(Wire):
    directory: str


class Project(Wire):
    """`id` is the hash of the repository's first commit, or `global` outside git; `worktree` is its main checkout."""

    id: str
    worktree: str
    vcs: Literal["git"] | None = None
    name: str | None = None
    icon: ProjectIcon | None = None
    commands: ProjectCommands | None = None
    time: ProjectTime
    sandboxes: list[str] = []

    def directories(self) -> list[str]:
        """Its checkouts, the main one first."""
        return [path for path in (self.worktree, *self.sandboxes) if path != "/"]

    def with_sandboxes_in(self, may_enter: Callable[[str], bool]) -> "Project":
        """Without the checkouts in directories that `may_enter` does not allow."""
        return self.model_copy(update={"sandboxes": [path for path in self.sandboxes if may_enter(path)]})
