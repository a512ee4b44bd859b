"""The tables. Ids and searched values are columns; the rest of a value is JSON in `body`.

The body of a message or part omits its ids, so that a fork copies bodies unchanged and a read splices the ids in without parsing.
`seq` is the order: it ascends as rows are inserted and does not depend on a clock or an id.
"""

from typing import Any, ClassVar

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Text, UniqueConstraint, false, text
from sqlmodel import Field, SQLModel

_Sequence = BigInteger().with_variant(Integer, "sqlite")


def _sequence_column() -> Column[int]:
    return Column("seq", _Sequence, primary_key=True, autoincrement=True)


def _token_sum() -> Any:
    return Field(default=0, sa_type=BigInteger, sa_column_kwargs={"server_default": text("0")})


SUM_PIECES = {
    "cost": '{"cost":',
    "tokens_input": ',"tokens":{"input":',
    "tokens_output": ',"output":',
    "tokens_reasoning": ',"reasoning":',
    "tokens_cache_read": ',"cache":{"read":',
    "tokens_cache_write": ',"write":',
}
"""What stands before each sum in the head of a session's JSON."""
SUMS_END = "}},"
NO_SUMS = "".join(f"{piece}0" for piece in SUM_PIECES.values()) + SUMS_END


def _partial_index(name: str, *columns: str, where: str) -> Index:
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


class ProjectRow(SQLModel, table=True):
    __tablename__: ClassVar[str] = "project"

    id: str = Field(primary_key=True)
    updated: int = Field(sa_type=BigInteger)
    body: str = Field(sa_type=Text)


class SessionRow(SQLModel, table=True):
    """`head` and `body` together are the whole Session (`app.storage.session_head`). Searches use `title_folded`. `diff_basis`, a
    JSON list, identifies the trees that the stored diff was computed from."""

    __tablename__: ClassVar[str] = "session"
    __table_args__ = (
        Index("session_by_project", "project_id", "seq"),
        Index("session_by_parent", "parent_id", "seq"),
        Index("session_by_directory", "directory", "owner"),
        Index("session_by_update", "updated", "seq"),
        _partial_index("session_by_owner", "owner", "project_id", "seq", where="owner <> ''"),
        Index("session_reverting", "seq", sqlite_where=text("reverting = 1"), postgresql_where=text("reverting")),
        {"sqlite_autoincrement": True},
    )

    seq: int | None = Field(default=None, sa_column=_sequence_column())
    id: str = Field(unique=True)
    project_id: str
    directory: str
    parent_id: str | None = None
    owner: str = Field(default="", sa_column_kwargs={"server_default": text("''")})
    """The user it belongs to; empty for nobody's, as on a server without users."""
    title_folded: str
    updated: int = Field(sa_type=BigInteger)
    body: str = Field(sa_type=Text)
    diff_basis: str | None = Field(default=None, sa_type=Text)
    reverting: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    """Set while a revert restores files; stays set if the server is killed meanwhile."""
    path: str | None = Field(default=None, sa_type=Text)
    archived: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    cost: float = Field(default=0, sa_column_kwargs={"server_default": text("0")})
    tokens_input: int = _token_sum()
    tokens_output: int = _token_sum()
    tokens_reasoning: int = _token_sum()
    tokens_cache_read: int = _token_sum()
    tokens_cache_write: int = _token_sum()
    head: str = Field(default=NO_SUMS, sa_column=Column(Text, nullable=False, server_default=NO_SUMS))
    """The sums as the beginning of the session's JSON."""


class MessageRow(SQLModel, table=True):
    """`open`: an unfinished answer, or a prompt without an answer. `boundary`: a finished compaction summary. `input_hash`: a
    hash of the prompt's input, which identifies a prompt that is sent twice."""

    __tablename__: ClassVar[str] = "message"
    __table_args__ = (
        UniqueConstraint("session_id", "id"),
        Index("message_by_session", "session_id", "seq"),
        Index("message_open", "open"),
        {"sqlite_autoincrement": True},
    )

    seq: int | None = Field(default=None, sa_column=_sequence_column())
    session_id: str = Field(sa_column=Column(Text, ForeignKey("session.id", ondelete="CASCADE"), nullable=False))
    id: str
    role: str
    parent_id: str | None = None
    open: bool = False
    boundary: bool = False
    input_hash: str | None = None
    body: str = Field(sa_type=Text)
    live_body: str | None = Field(default=None, sa_type=Text)
    """A smaller body for turns, if there is one: a prompt without its diffs."""


class PartRow(SQLModel, table=True):
    """`snapshot`: the tree at the start or end of a step.

    There is no index over (session, `seq`): for the parts of some messages in that order, SQLite would scan it from its start
    instead of looking the messages up."""

    __tablename__: ClassVar[str] = "part"
    __table_args__ = (
        UniqueConstraint("session_id", "message_id", "id"),
        Index("part_by_message", "session_id", "message_id", "seq"),
        _partial_index("part_patches", "session_id", "seq", where="type = 'patch'"),
        _partial_index("part_snapshots", "session_id", "message_id", "type", "seq", where="snapshot IS NOT NULL"),
        {"sqlite_autoincrement": True},
    )

    seq: int | None = Field(default=None, sa_column=_sequence_column())
    session_id: str = Field(sa_column=Column(Text, ForeignKey("session.id", ondelete="CASCADE"), nullable=False))
    message_id: str
    id: str
    type: str
    body: str = Field(sa_type=Text)
    live_body: str | None = Field(default=None, sa_type=Text)
    """A smaller body for the model's history, if there is one: without a pruned output."""
    snapshot: str | None = None


class PartTextRow(SQLModel, table=True):
    """What searches look at: the `text` of a finished part, encoded. It is there from the part's commit on, and in the index of
    trigrams (app/storage/text_index.py) from when `indexed` is set, some seconds later; until then searches read the text itself.
    `time` in epoch milliseconds."""

    __tablename__: ClassVar[str] = "part_text"
    __table_args__ = (
        Index("part_text_unindexed", "part_seq", sqlite_where=text("indexed = 0"), postgresql_where=text("NOT indexed")),
        Index("part_text_facts", "part_seq", "time", "role", "kind"),
    )

    part_seq: int = Field(
        sa_column=Column(_Sequence, ForeignKey("part.seq", ondelete="CASCADE"), primary_key=True, autoincrement=False)
    )
    role: str
    kind: str
    time: int = Field(sa_type=BigInteger)
    indexed: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    text: str = Field(sa_type=Text)


class TodoRow(SQLModel, table=True):
    __tablename__: ClassVar[str] = "todo"

    session_id: str = Field(sa_column=Column(Text, ForeignKey("session.id", ondelete="CASCADE"), primary_key=True))
    body: str = Field(sa_type=Text)


class DiffRow(SQLModel, table=True):
    __tablename__: ClassVar[str] = "session_diff"

    session_id: str = Field(sa_column=Column(Text, ForeignKey("session.id", ondelete="CASCADE"), primary_key=True))
    body: str = Field(sa_type=Text)


class ApprovalRow(SQLModel, table=True):
    """A reply of `always`, valid for the whole project; `session_id` is the session in which the user gave it."""

    __tablename__: ClassVar[str] = "permission_approval"

    project_id: str = Field(primary_key=True)
    permission: str = Field(primary_key=True)
    pattern: str = Field(primary_key=True)
    session_id: str = Field(index=True)


class PendingRequestRow(SQLModel, table=True):
    """A permission request or a question that waits for a person, or whose `answer` (JSON) waits for the call that asked; `kind`
    is `permission` or `question`."""

    __tablename__: ClassVar[str] = "pending_ask"
    __table_args__ = ({"sqlite_autoincrement": True},)

    seq: int | None = Field(default=None, sa_column=_sequence_column())
    id: str = Field(unique=True)
    kind: str
    session_id: str = Field(sa_column=Column(Text, ForeignKey("session.id", ondelete="CASCADE"), nullable=False, index=True))
    directory: str
    body: str = Field(sa_type=Text)
    answer: str | None = Field(default=None, sa_type=Text)


class QueuedPromptRow(SQLModel, table=True):
    """A prompt that waits for a turn of its own, in the order of `seq`. `input` is what the client sent, `input_hash` a hash of
    what it says, `message` the message that it becomes, with its parts."""

    __tablename__: ClassVar[str] = "queued_prompt"
    __table_args__ = (UniqueConstraint("session_id", "message_id"), {"sqlite_autoincrement": True})

    seq: int | None = Field(default=None, sa_column=_sequence_column())
    id: str = Field(unique=True)
    session_id: str = Field(sa_column=Column(Text, ForeignKey("session.id", ondelete="CASCADE"), nullable=False, index=True))
    message_id: str | None = None
    directory: str
    created: int = Field(sa_type=BigInteger)
    input_hash: str
    input: str = Field(sa_type=Text)
    message: str = Field(sa_type=Text)


class ShareRow(SQLModel, table=True):
    """`id` is the secret in the link: anyone who knows it may read the session."""

    __tablename__: ClassVar[str] = "share"

    session_id: str = Field(sa_column=Column(Text, ForeignKey("session.id", ondelete="CASCADE"), primary_key=True))
    id: str = Field(unique=True)
    created: int = Field(sa_type=BigInteger)


class EventRow(SQLModel, table=True):
    """The event journal; `seq` is the SSE id. No directory: an event of the whole server."""

    __tablename__: ClassVar[str] = "event_journal"
    __table_args__ = (Index("event_by_time", "time", "seq", "bytes"),)

    seq: int = Field(sa_column=Column(_Sequence, primary_key=True, autoincrement=False))
    directory: str | None = None
    time: int = Field(sa_type=BigInteger)
    payload: str = Field(sa_type=Text)
    bytes: int = Field(sa_column=Column(Integer, nullable=False, server_default="0"))
    """The size of the payload. It is in the index, so that trimming the journal reads no payload."""
    owner: str | None = None
    """The user whose session it is of, empty for nobody's; None for an event of no session."""


class LeaseRow(SQLModel, table=True):
    """Which server runs a session now (`owner` is empty when none does); a write under an older generation is refused.

    `status` is the JSON that the session's status is announced with, in `directory`; `aborting` asks the owner to end the run;
    `takeovers` counts the servers in a row that died with the same turn."""

    __tablename__: ClassVar[str] = "run_lease"
    __table_args__ = (_partial_index("run_lease_held", "session_id", where="owner <> ''"),)

    session_id: str = Field(sa_column=Column(Text, ForeignKey("session.id", ondelete="CASCADE"), primary_key=True))
    owner: str
    generation: int
    heartbeat: int = Field(sa_type=BigInteger)
    directory: str | None = Field(default=None, sa_type=Text)
    status: str | None = Field(default=None, sa_type=Text)
    aborting: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    takeovers: int = Field(default=0, sa_column_kwargs={"server_default": "0"})


class ReplicaRow(SQLModel, table=True):
    """A server of this database. `volume` names the data directory that it sees; `journal_lag` counts the events that its clients
    were still to be given at its `heartbeat`."""

    __tablename__: ClassVar[str] = "replica"

    id: str = Field(primary_key=True)
    started: int = Field(sa_type=BigInteger)
    heartbeat: int = Field(sa_type=BigInteger)
    version: str
    address: str
    volume: str | None = None
    journal_lag: int | None = Field(default=None, sa_type=BigInteger)


class DirectoryStateRow(SQLModel, table=True):
    """What the servers of a database must agree on about a directory (empty: about all), by name. `server` wrote it; `revision`
    grows with each write of any row."""

    __tablename__: ClassVar[str] = "directory_state"

    directory: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    value: str = Field(sa_type=Text)
    server: str
    revision: int = Field(sa_type=BigInteger)


class EventTokenRow(SQLModel, table=True):
    """A login for one event stream, of the `principal` (JSON). `created` in epoch milliseconds."""

    __tablename__: ClassVar[str] = "event_token"

    hash: str = Field(primary_key=True)
    created: int = Field(sa_type=BigInteger)
    principal: str = Field(sa_type=Text, sa_column_kwargs={"server_default": text("'{}'")})


class UserRow(SQLModel, table=True):
    """`roots` is a JSON list of directories. `max_cost` (dollars) and `max_tokens` are for a day."""

    __tablename__: ClassVar[str] = "user_account"

    name: str = Field(primary_key=True)
    role: str
    roots: str = Field(sa_type=Text)
    created: int = Field(sa_type=BigInteger)
    max_cost: float | None = None
    max_tokens: int | None = Field(default=None, sa_type=BigInteger)


class UserKeyRow(SQLModel, table=True):
    """A user's own key of a provider; `body` is encrypted."""

    __tablename__: ClassVar[str] = "user_key"

    name: str = Field(primary_key=True)
    provider_id: str = Field(primary_key=True)
    body: str = Field(sa_type=Text)


class UsageRow(SQLModel, table=True):
    """What a user's model calls took on a day (UTC, `2026-01-31`)."""

    __tablename__: ClassVar[str] = "user_usage"

    name: str = Field(primary_key=True)
    day: str = Field(primary_key=True)
    cost: float
    tokens: int = Field(sa_type=BigInteger)


class StepUsageRow(SQLModel, table=True):
    """The ledger of model calls: what each step took, kept when its session is deleted. `id` is that of the part or message that
    ends the step. `owner`, `directory` and `project_id` are the session's at that time. A title's row has an empty message and
    no prompt."""

    __tablename__: ClassVar[str] = "step_usage"
    __table_args__ = (Index("step_usage_by_prompt", "session_id", "prompt_id"), Index("step_usage_by_time", "time"))

    session_id: str = Field(primary_key=True)
    message_id: str = Field(primary_key=True)
    id: str = Field(primary_key=True)
    time: int = Field(sa_type=BigInteger)
    owner: str
    project_id: str
    directory: str
    prompt_id: str | None = None
    agent: str
    provider_id: str
    model_id: str
    input: int = Field(sa_type=BigInteger)
    output: int = Field(sa_type=BigInteger)
    reasoning: int = Field(sa_type=BigInteger)
    cache_read: int = Field(sa_type=BigInteger)
    cache_write: int = Field(sa_type=BigInteger)
    cost: float
    turns: int
    """1 for the first step that answers a prompt."""
    tool_calls: int


class WebhookRow(SQLModel, table=True):
    """`events` is a JSON list of patterns, `secret` is encrypted, `role` is its owner's when it was switched on, of `id_key` the
    ids of its messages are made. `server` delivers it, up to the event `cursor` by now; `revision` grows with each change by its
    owner. Since `failed_since` the event behind the cursor could not be delivered, in `attempts`; the next is at `retry_at`."""

    __tablename__: ClassVar[str] = "webhook"

    id: str = Field(primary_key=True)
    owner: str
    role: str
    url: str = Field(sa_type=Text)
    events: str = Field(sa_type=Text)
    directory: str | None = Field(default=None, sa_type=Text)
    session_id: str | None = None
    secret: str = Field(sa_type=Text)
    id_key: str
    created: int = Field(sa_type=BigInteger)
    enabled: bool = True
    disabled_reason: str | None = Field(default=None, sa_type=Text)
    revision: int = 0
    server: str = ""
    cursor: int = Field(sa_type=BigInteger)
    attempts: int = 0
    failed_since: int | None = Field(default=None, sa_type=BigInteger)
    retry_at: int | None = Field(default=None, sa_type=BigInteger)


class WebhookDeliveryRow(SQLModel, table=True):
    """An attempt to deliver a message; without an `error` it was accepted. `time` in epoch milliseconds."""

    __tablename__: ClassVar[str] = "webhook_delivery"
    __table_args__ = (Index("webhook_delivery_by_webhook", "webhook_id", "seq"),)

    seq: int | None = Field(default=None, sa_column=_sequence_column())
    webhook_id: str = Field(sa_column=Column(Text, ForeignKey("webhook.id", ondelete="CASCADE"), nullable=False))
    message_id: str
    type: str
    time: int = Field(sa_type=BigInteger)
    attempt: int
    milliseconds: int
    status: int | None = None
    error: str | None = Field(default=None, sa_type=Text)


class ImportedSessionRow(SQLModel, table=True):
    """A session that was imported from OpenCode, with a hash of what was imported. It stays when the session is deleted here, so
    that the next import does not bring the session back."""

    __tablename__: ClassVar[str] = "imported_session"

    id: str = Field(primary_key=True)
    fingerprint: str


class CounterRow(SQLModel, table=True):
    """Numbers that several servers of one database share: the newest sequence of the `journal`, the database's `identity`,
    and the newest of the old parts whose text searches do not have yet (`unsearched_parts`; 0 for none)."""

    __tablename__: ClassVar[str] = "counter"

    name: str = Field(primary_key=True)
    value: int = Field(sa_type=BigInteger)


def _table(model: type[SQLModel]) -> Any:
    return model.__table__  # type: ignore[attr-defined]


SESSION, MESSAGE, PART, PART_TEXT = _table(SessionRow), _table(MessageRow), _table(PartRow), _table(PartTextRow)
TODO, DIFF, SHARE = _table(TodoRow), _table(DiffRow), _table(ShareRow)
PROJECT, APPROVAL, PENDING_REQUEST = _table(ProjectRow), _table(ApprovalRow), _table(PendingRequestRow)
QUEUED_PROMPT = _table(QueuedPromptRow)
USER, USER_KEY, USAGE = _table(UserRow), _table(UserKeyRow), _table(UsageRow)
EVENT, LEASE, COUNTER, REPLICA = _table(EventRow), _table(LeaseRow), _table(CounterRow), _table(ReplicaRow)
DIRECTORY_STATE, EVENT_TOKEN, STEP_USAGE = _table(DirectoryStateRow), _table(EventTokenRow), _table(StepUsageRow)
WEBHOOK, WEBHOOK_DELIVERY = _table(WebhookRow), _table(WebhookDeliveryRow)
IMPORTED_SESSION = _table(ImportedSessionRow)
