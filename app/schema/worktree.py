"""Worktrees that the server makes of a project's repository."""

from app.schema.base import Wire


class CreatedWorktree(Wire):
    name: str
    branch: str
    directory: str


class WorktreeCreateInput(Wire):
    """`start_command` runs after the project's start command."""

    name: str | None = None
    start_command: str | None = None


class WorktreeDirectory(Wire):
    directory: str
