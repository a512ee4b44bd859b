"""Sessions, clients' requests to make and change them, and searches, sums and deletions of sessions."""

from typing import Annotated, Literal

import orjson
from pydantic import AfterValidator, Field, GetJsonSchemaHandler, StrictBool, StrictFloat
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from app.schema.base import Int64, MessageID, Metadata, SessionID, Wire
from app.schema.part import Tokens
from app.schema.permission import Ruleset


class FileDiff(Wire):
    """One file's change; `file` is relative to the worktree, `before` and `after` are whole texts, empty when binary, or when
    those of the diff are too large.

    `patch` is a unified diff, absent when binary or too large. Older diffs, and imported ones, lack it and `status`.
    """

    file: str
    before: str
    after: str
    additions: Int64
    deletions: Int64
    patch: str | None = None
    status: Literal["added", "deleted", "modified"] | None = None


class SessionSummary(Wire):
    additions: Int64
    deletions: Int64
    files: Int64
    diffs: list[FileDiff] | None = None


class Share(Wire):
    url: str


class SessionTime(Wire):
    created: Int64
    updated: Int64
    compacting: Int64 | None = None
    archived: float | None = None


class NotReverted(Wire):
    """A file, or a tool, whose changes a revert could not undo."""

    file: str
    reason: str


class Revert(Wire):
    """`snapshot` is the tree from just before. Opensession's own: `notReverted`; `unfinished` while files are being restored. If
    the server is killed meanwhile, another server, or its next start, undoes the revert."""

    message_id: str
    part_id: str | None = None
    snapshot: str | None = None
    diff: str | None = None
    not_reverted: list[NotReverted] | None = None
    unfinished: bool | None = None


class RevertedFile(Wire):
    """What a revert does to a file. `path` is relative to the worktree."""

    path: str
    status: Literal["added", "deleted", "modified"]
    additions: int
    deletions: int
    patch: str


class RevertState(Wire):
    """A `Revert`, as the second API tells it. `files`: the first thousand."""

    message_id: str
    part_id: str | None = None
    snapshot: str | None = None
    diff: str | None = None
    files: list[RevertedFile] | None = None


DEFAULT_VARIANT = "default"
"""For a model that was named without a variant."""


class SessionModel(Wire):
    """The model for prompts that name none, in a session without an earlier prompt."""

    id: str
    provider_id: str
    variant: str | None = None


class Session(Wire):
    """`path`, `cost` and `tokens` are in all answers but that of the creation, where they would say nothing."""

    id: SessionID
    slug: str
    project_id: str
    directory: str
    path: Annotated[str | None, Field(description="The directory, relative to the top of its checkout; empty: that top")] = None
    parent_id: SessionID | None = None
    summary: SessionSummary | None = None
    cost: Annotated[float, Field(description="Of its steps, in dollars")] = 0
    tokens: Annotated[Tokens, Field(description="Of its steps")] = Field(default_factory=Tokens)
    share: Share | None = None
    title: str
    agent: str | None = None
    model: SessionModel | None = None
    metadata: Metadata | None = None
    version: str
    time: SessionTime
    permission: Ruleset | None = None
    revert: Revert | None = None
    owner: Annotated[str | None, Field(description="The user it belongs to, on a server with users")] = None
    pinned: Annotated[bool | None, Field(description="Stays, however old it is, when old sessions are deleted")] = None
    no_undo: Annotated[str | None, Field(description="Why changes of files cannot be reverted in its directory")] = None

    @classmethod
    def _always_there(cls) -> set[str]:
        return super()._always_there() - {"cost", "tokens"}


class ProjectSummary(Wire):
    id: str
    name: str | None = None
    worktree: str


class GlobalSession(Session):
    """With its project; null if the project is not stored."""

    project: ProjectSummary | None

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = super().__get_pydantic_json_schema__(core_schema, handler)
        properties = handler.resolve_ref_schema(schema)["properties"]
        properties["project"] = {"anyOf": [properties["project"], {"type": "null"}]}
        return schema


class Todo(Wire):
    content: Annotated[str, Field(description="Brief description of the task")]
    status: Annotated[str, Field(description="Current status of the task: pending, in_progress, completed, cancelled")]
    priority: Annotated[str, Field(description="Priority level of the task: high, medium, low")]
    id: Annotated[str, Field(description="Unique identifier for the todo item")]


class Idle(Wire):
    type: Literal["idle"] = "idle"


class Busy(Wire):
    type: Literal["busy"] = "busy"


class Retry(Wire):
    """Waiting to send the request to the provider again; `next` is epoch milliseconds."""

    type: Literal["retry"] = "retry"
    attempt: int
    message: str
    next: int


SessionStatus = Annotated[Idle | Retry | Busy, Field(discriminator="type")]


Title = Annotated[str, Field(max_length=1_000_000)]
"""The title is in every list and event of its session."""


MAX_METADATA_BYTES = 1_000_000


def _bounded(metadata: Metadata) -> Metadata:
    if len(orjson.dumps(metadata)) > MAX_METADATA_BYTES:
        raise ValueError(f"metadata has at most {MAX_METADATA_BYTES} bytes")
    return metadata


def _no_workspace(_: str) -> str:
    raise ValueError("there are no workspaces here: name a directory")


NoWorkspace = Annotated[str, AfterValidator(_no_workspace), Field(description="Refused: there are none here")]


SessionMetadata = Annotated[Metadata, AfterValidator(_bounded)]
"""A client's own; like the title it is in every list and event of its session."""


class CreateInput(Wire):
    parent_id: SessionID | None = None
    title: Title | None = None
    agent: str | None = None
    model: SessionModel | None = None
    metadata: SessionMetadata | None = None
    permission: Ruleset | None = None
    workspace_id: NoWorkspace | None = None


class UpdateTime(Wire):
    archived: StrictFloat | None = None


class UpdateInput(Wire):
    """`permission` is added after the present rules; `metadata` replaces the present one."""

    title: Title | None = None
    metadata: SessionMetadata | None = None
    permission: Ruleset | None = None
    time: UpdateTime | None = None
    owner: Annotated[str | None, Field(description="Give it to another user, empty: to nobody; for admins")] = None
    pinned: Annotated[StrictBool | None, Field(description="Whether it stays when old sessions are deleted")] = None


class ForkInput(Wire):
    message_id: MessageID | None = None


class RevertInput(Wire):
    message_id: MessageID
    part_id: str | None = None
    dry_run: StrictBool = False
    files: Annotated[StrictBool, Field(description="false: only the messages are reverted")] = True


class FoundPart(Wire):
    """`snippet`: some of the part's text, as it is stored. `ranges`: where the words are in it, [start, end) in UTF-16 code
    units, which JavaScript counts strings in. `time`: when the part began, in milliseconds; `title`: the session's."""

    session_id: str
    message_id: str
    part_id: str
    role: str
    title: str
    time: int
    snippet: str
    ranges: list[tuple[int, int]]


class FoundParts(Wire):
    """`next`: the cursor of the next page; absent on the last one."""

    results: list[FoundPart]
    next: str | None = None


UsageGroup = Literal["model", "provider", "day", "session", "directory", "agent"]


class UsageTotal(Wire):
    """`cost` in dollars. `turns`: prompts that were answered; `toolCalls`: tool calls of the answers."""

    tokens: Tokens = Field(default_factory=Tokens)
    cost: float = 0
    turns: int = 0
    tool_calls: int = 0


class GroupUsage(UsageTotal):
    key: Annotated[str, Field(description="`provider/model`, a provider, a day (UTC, `2026-01-31`), a session, …")]


class UsageReport(Wire):
    """`groups` add up to `total`."""

    group: UsageGroup
    total: UsageTotal
    groups: Annotated[list[GroupUsage], Field(description="The dearest first; days in their order")]


class PruneInput(Wire):
    older_than_days: Annotated[
        float, Field(ge=0, le=36_500, description="Of a session and all below it, none has changed for so long")
    ]
    archived_only: StrictBool = False
    dry_run: StrictBool = False


class PruneReport(Wire):
    """`trees`: root sessions that were deleted (of a dry run: that would be) with all below them, `sessions` altogether. The
    others count trees that are as old, and stay."""

    trees: int = 0
    sessions: int = 0
    running: int = 0
    shared: int = 0
    pinned: int = 0
