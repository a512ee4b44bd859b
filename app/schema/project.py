"""Projects: their checkouts, what git says of a directory, worktrees, and files as clients see them."""

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import Field

from app.schema.base import Wire
from app.schema.part import Range


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


# What git says of a directory: its branch, what differs from a commit, its worktrees.


class VcsInfo(Wire):
    """`branch` is empty if HEAD is detached, and outside git."""

    branch: str
    default_branch: Annotated[str | None, Field(alias="default_branch")] = None


class VcsFileStatus(Wire):
    """`file` is from the top of the checkout. Counts are lines, 0 for a binary file."""

    file: str
    additions: int
    deletions: int
    status: Literal["added", "deleted", "modified"]


class VcsFileDiff(VcsFileStatus):
    """`patch` is a header alone where there is too much to show."""

    patch: str


class VcsPatch(Wire):
    patch: str


class VcsApplied(Wire):
    applied: Literal[True] = True


class VcsApplyData(Wire):
    message: str
    reason: Literal["non-git", "not-clean"]


class VcsApplyError(Wire):
    name: Literal["VcsApplyError"]
    data: VcsApplyData


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


# What clients see when they look into a project: matches of a search, entries of a directory, a file, what git says of it.


class MatchedText(Wire):
    text: str


class Submatch(Wire):
    """`start` and `end` count bytes of the line."""

    match: MatchedText
    start: int
    end: int


class TextMatch(Wire):
    """A line, as `rg --json` reports it; `absolute_offset` is where it starts in the file, in bytes."""

    path: MatchedText
    lines: MatchedText
    line_number: Annotated[int, Field(alias="line_number")]
    absolute_offset: Annotated[int, Field(alias="absolute_offset")]
    submatches: list[Submatch]


class SymbolLocation(Wire):
    uri: str
    range: Range


class Symbol(Wire):
    name: str
    kind: int
    location: SymbolLocation


class FileNode(Wire):
    """`path` is relative to the directory that the request works in; `ignored` is git's view."""

    name: str
    path: str
    absolute: str
    type: Literal["file", "directory"]
    ignored: bool


class PatchHunk(Wire):
    """`lines` start with ` `, `-` or `+`, or say that there is no newline at the end."""

    old_start: int
    old_lines: int
    new_start: int
    new_lines: int
    lines: list[str]


class FilePatch(Wire):
    """A structured patch as the npm package `diff` makes it."""

    old_file_name: str
    new_file_name: str
    old_header: str | None = None
    new_header: str | None = None
    hunks: list[PatchHunk]
    index: str | None = None


class ViewedFile(Wire):
    """Text without the white space around it, or the bytes in base64. `diff` and `patch` when it differs from HEAD."""

    type: Literal["text"] = "text"
    content: str
    diff: str | None = None
    patch: FilePatch | None = None
    encoding: Literal["base64"] | None = None
    mime_type: str | None = None


class ChangedFile(Wire):
    """Against HEAD. Counts are lines, 0 for a binary file; `path` is relative to the directory that the request works in."""

    path: str
    added: int
    removed: int
    status: Literal["added", "deleted", "modified"]
