"""Projects: their checkouts, what git says of a directory, worktrees, files as clients see them; and a directory's MCP servers,
language servers and formatters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

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
        """The project's checkouts, the main one first."""
        return [path for path in (self.worktree, *self.sandboxes) if path != "/"]

    def with_sandboxes_in(self, may_enter: Callable[[str], bool]) -> "Project":
        """Without the checkouts in directories that `may_enter` does not allow. If the main one is among them the first of the
        others is shown as that, if there are any: of clones that several users have, the last opened one is the main checkout."""
        sandboxes = [path for path in self.sandboxes if may_enter(path)]
        worktree = self.worktree if may_enter(self.worktree) else next(iter(sandboxes), self.worktree)
        return self.model_copy(update={"worktree": worktree, "sandboxes": sandboxes})


# A directory's state in git: its branch, its changes since a commit, its worktrees.


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
    """`patch` is only a header if there is too much to show."""

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


# What clients see in a project: matches of a search, entries of a directory, a file, its changes in git.


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
    """Text without surrounding white space, or the bytes in base64. `diff` and `patch` if it differs from HEAD."""

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


class MCPStatusConnected(Wire):
    status: Literal["connected"] = "connected"


class MCPStatusDisabled(Wire):
    status: Literal["disabled"] = "disabled"


class MCPStatusFailed(Wire):
    status: Literal["failed"] = "failed"
    error: str


class MCPStatusNeedsAuth(Wire):
    status: Literal["needs_auth"] = "needs_auth"


class MCPStatusNeedsClientRegistration(Wire):
    status: Literal["needs_client_registration"] = "needs_client_registration"
    error: str


MCPStatus = Annotated[
    MCPStatusConnected | MCPStatusDisabled | MCPStatusFailed | MCPStatusNeedsAuth | MCPStatusNeedsClientRegistration,
    Field(discriminator="status"),
]


class McpResource(Wire):
    """`client`: the server's name."""

    name: str
    uri: str
    description: str | None = None
    mime_type: str | None = None
    client: str


class LSPStatus(Wire):
    """`root` is relative to the directory that the request works in, empty for that directory."""

    id: str
    name: str
    root: str
    status: Literal["connected", "error"]


class FormatterStatus(Wire):
    """`enabled`: the program was found, and the project uses it."""

    name: str
    extensions: list[str]
    enabled: bool


@dataclass(slots=True)
class FileErrors:
    """A language server's errors in a file: the first of `total`, as LSP's Diagnostic has them."""

    items: list[Mapping[str, Any]] = field(default_factory=list)
    total: int = 0

    def add(self, other: "FileErrors") -> None:
        """Adds another server's errors."""
        self.items += other.items
        self.total += other.total
