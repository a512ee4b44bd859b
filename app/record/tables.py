"""The tables, as SQLModel classes: the only declaration of their columns.

Ids and searched values are columns; the rest of a value is JSON in `body`. The body of a message or part omits its ids, so that
a fork copies bodies unchanged. `seq` is the order: it ascends as rows are inserted and does not depend on a clock or an id.

Statements are of SQLAlchemy Core on the tables of these classes, which stand at the end: a row that becomes an object costs ten
times as much.
"""

import re
from typing import Any, ClassVar

import orjson
from sqlalchemy import BigInteger, Index, Integer, Text, UniqueConstraint, false, text
from sqlalchemy.orm import declared_attr
from sqlmodel import Field, SQLModel

METADATA = SQLModel.metadata
"""All tables, for migrations, and for tests that compare them with a database."""

SUMS = ("cost", "tokens_input", "tokens_output", "tokens_reasoning", "tokens_cache_read", "tokens_cache_write")
"""The columns of a session that its steps add to."""

_BIG = BigInteger().with_variant(Integer, "sqlite")
"""SQLite counts up only integers."""
_NUMBERED_FOR_EVER = {"sqlite_autoincrement": True}
"""No number is given twice, even if its row was deleted."""


def _sequence() -> Any:
    return Field(default=None, primary_key=True, sa_type=_BIG)


def _of_session(**options: Any) -> Any:
    return Field(sa_type=Text, foreign_key="session.id", ondelete="CASCADE", **options)


def _text(**options: Any) -> Any:
    return Field(sa_type=Text, **options)


def _big(**options: Any) -> Any:
    return Field(sa_type=BigInteger, **options)


def _flag() -> Any:
    return Field(default=False, sa_column_kwargs={"server_default": false()})


def _defaulted(value: Any, server: str, **options: Any) -> Any:
    """Rows that were stored before the column existed have `server`."""
    return Field(default=value, sa_column_kwargs={"server_default": text(server)}, **options)


def _sum() -> Any:
    return _defaulted(0, "0", sa_type=BigInteger)


def _some(name: str, *columns: str, where: str, in_postgresql: str | None = None) -> Index:
    """An index of only some rows."""
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(in_postgresql or where))


class TableRow(SQLModel):
    """A table has the name of its class without `Row`, in snake case, unless it says another."""

    @declared_attr.directive
    def __tablename__(cls) -> str:
        return re.sub("(?<=[a-z])(?=[A-Z])", "_", cls.__name__.removesuffix("Row")).lower()


class ProjectRow(TableRow, table=True):
    id: str = Field(primary_key=True)
    updated: int = _big()
    body: str = _text()


class SessionRow(TableRow, table=True):
    """`body` has all of a Session but its SUMS, which steps add to while others change the rest. Searches use `title_folded`.
    `diff_basis`, a JSON list, identifies the trees that the stored diff was computed from. `reverting` is set while a revert
    restores files, and stays set if the server is killed meanwhile. `owner`: the session's user; empty for none, as on a server
    without users."""

    __table_args__ = (
        Index("session_by_project", "project_id", "seq"),
        Index("session_by_parent", "parent_id", "seq"),
        Index("session_by_directory", "directory", "owner"),
        Index("session_by_update", "updated", "seq"),
        _some("session_by_owner", "owner", "project_id", "seq", where="owner <> ''"),
        _some("session_reverting", "seq", where="reverting = 1", in_postgresql="reverting"),
        _NUMBERED_FOR_EVER,
    )

    seq: int | None = _sequence()
    id: str = Field(unique=True)
    project_id: str
    directory: str
    parent_id: str | None
    title_folded: str
    updated: int = _big()
    body: str = _text()
    diff_basis: str | None = _text()
    reverting: bool = _flag()
    owner: str = _defaulted("", "''")
    path: str | None = _text()
    archived: bool = _flag()
    cost: float = _defaulted(0, "0")
    tokens_input: int = _sum()
    tokens_output: int = _sum()
    tokens_reasoning: int = _sum()
    tokens_cache_read: int = _sum()
    tokens_cache_write: int = _sum()


class MessageRow(TableRow, table=True):
    """`open`: an unfinished answer, or a prompt without an answer. `boundary`: a finished compaction summary. `input_hash`: of
    the prompt's input, to identify a prompt that is sent twice. `live_body`: a smaller body for turns, if there is one: a prompt
    without its diffs."""

    __table_args__ = (
        UniqueConstraint("session_id", "id"),
        Index("message_by_session", "session_id", "seq"),
        Index("message_open", "open"),
        _NUMBERED_FOR_EVER,
    )

    seq: int | None = _sequence()
    session_id: str = _of_session()
    id: str
    role: str
    parent_id: str | None
    open: bool = False
    boundary: bool = False
    input_hash: str | None
    body: str = _text()
    live_body: str | None = _text()


class PartRow(TableRow, table=True):
    """`snapshot`: the tree at the start or end of a step. `live_body`: a smaller body for the model's history, if there is one:
    without a pruned output.

    There is no index over (session, `seq`): for the parts of some messages in that order, SQLite would scan it from its start
    instead of looking the messages up."""

    __table_args__ = (
        UniqueConstraint("session_id", "message_id", "id"),
        Index("part_by_message", "session_id", "message_id", "seq"),
        _some("part_patches", "session_id", "seq", where="type = 'patch'"),
        _some("part_snapshots", "session_id", "message_id", "type", "seq", where="snapshot IS NOT NULL"),
        _NUMBERED_FOR_EVER,
    )

    seq: int | None = _sequence()
    session_id: str = _of_session()
    message_id: str
    id: str
    type: str
    body: str = _text()
    live_body: str | None = _text()
    snapshot: str | None


class PartTextRow(TableRow, table=True):
    """The searched `text` of a finished part, encoded; app/record/text_search.py has an index of it. `time` in epoch
    milliseconds."""

    __table_args__ = (Index("part_text_facts", "part_seq", "time", "role", "kind"),)

    part_seq: int = Field(
        primary_key=True,
        sa_type=_BIG,
        foreign_key="part.seq",
        ondelete="CASCADE",
        sa_column_kwargs={"autoincrement": False},
    )
    role: str
    kind: str
    time: int = _big()
    text: str = _text()


class TodoRow(TableRow, table=True):
    session_id: str = _of_session(primary_key=True)
    body: str = _text()


class DiffRow(TableRow, table=True):
    __tablename__: ClassVar[str] = "session_diff"

    session_id: str = _of_session(primary_key=True)
    body: str = _text()


class ApprovalRow(TableRow, table=True):
    """A reply of `always`, valid for the whole project; `session_id` is the session in which the user gave it."""

    __tablename__: ClassVar[str] = "permission_approval"

    project_id: str = Field(primary_key=True)
    permission: str = Field(primary_key=True)
    pattern: str = Field(primary_key=True)
    session_id: str = Field(index=True)


class PendingRequestRow(TableRow, table=True):
    """A permission request or a question that waits for a user, or whose `answer` (JSON) waits for the call that asked. `kind` is
    `permission` or `question`."""

    __tablename__: ClassVar[str] = "pending_ask"
    __table_args__ = _NUMBERED_FOR_EVER

    seq: int | None = _sequence()
    id: str = Field(unique=True)
    kind: str
    session_id: str = _of_session(index=True)
    directory: str
    body: str = _text()
    answer: str | None = _text()


class QueuedPromptRow(TableRow, table=True):
    """A prompt that waits for a turn of its own, in the order of `seq`. `input`: what the client sent; `input_hash`: of its
    content, or the row's id if it names no message; `message`: the message that it becomes, with its parts."""

    __table_args__ = (UniqueConstraint("session_id", "message_id"), _NUMBERED_FOR_EVER)

    seq: int | None = _sequence()
    id: str = Field(unique=True)
    session_id: str = _of_session(index=True)
    message_id: str | None
    directory: str
    created: int = _big()
    input_hash: str
    input: str = _text()
    message: str = _text()


class ShareRow(TableRow, table=True):
    """`id` is the secret in the link: anyone who knows it may read the session."""

    session_id: str = _of_session(primary_key=True)
    id: str = Field(unique=True)
    created: int = _big()


class EventRow(TableRow, table=True):
    """The event journal. `seq` is the SSE id, `payload` the JSON of the `type` and the properties. Without a directory: an event
    of the whole server; without `session_id`: of no session. `bytes`: the size of the payload; it is in the index, so that
    trimming the journal reads no payload. `owner`: the session's user, empty for none; None for an event of no session."""

    __tablename__: ClassVar[str] = "event_journal"
    __table_args__ = (Index("event_by_session", "session_id", "seq"), Index("event_by_time", "time", "seq", "bytes"))

    seq: int = Field(primary_key=True, sa_type=_BIG, sa_column_kwargs={"autoincrement": False})
    directory: str | None
    time: int = _big()
    payload: str = _text()
    bytes: int = Field(sa_column_kwargs={"server_default": "0"})
    owner: str | None
    type: str = _defaulted("", "''")
    session_id: str | None


class LeaseRow(TableRow, table=True):
    """The server that runs a session now (`owner`, empty for none). A write under an older generation is refused.

    `status`: the JSON that the session's status is announced with, in `directory`. `aborting` asks the owner to end the run.
    `takeovers` counts the servers in a row that died with the same turn."""

    __tablename__: ClassVar[str] = "run_lease"
    __table_args__ = (_some("run_lease_held", "session_id", where="owner <> ''"),)

    session_id: str = _of_session(primary_key=True)
    owner: str
    generation: int
    heartbeat: int = _big()
    directory: str | None = _text()
    status: str | None = _text()
    aborting: bool = _flag()
    takeovers: int = Field(default=0, sa_column_kwargs={"server_default": "0"})


class ReplicaRow(TableRow, table=True):
    """A server of this database. `volume` names its data directory. `journal_lag`: how many events its clients had not been given
    yet at its `heartbeat`."""

    id: str = Field(primary_key=True)
    started: int = _big()
    heartbeat: int = _big()
    version: str
    address: str
    volume: str | None
    journal_lag: int | None = _big()


class DirectoryStateRow(TableRow, table=True):
    """A state of a directory (empty: of all), by name, that the servers of a database must agree on. `server` wrote it.
    `revision` grows with each write of any row."""

    directory: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    value: str = _text()
    server: str
    revision: int = _big()


class EventTokenRow(TableRow, table=True):
    """A login for one event stream, of the `principal` (JSON). `created` in epoch milliseconds."""

    hash: str = Field(primary_key=True)
    created: int = _big()
    principal: str = _text(sa_column_kwargs={"server_default": text("'{}'")})


class UserRow(TableRow, table=True):
    """`roots` is a JSON list of directories. `max_cost` (dollars) and `max_tokens` are for a day."""

    __tablename__: ClassVar[str] = "user_account"

    name: str = Field(primary_key=True)
    role: str
    roots: str = _text()
    created: int = _big()
    max_cost: float | None
    max_tokens: int | None = _big()


class UserKeyRow(TableRow, table=True):
    """A user's own key of a provider; `body` is encrypted."""

    name: str = Field(primary_key=True)
    provider_id: str = Field(primary_key=True)
    body: str = _text()


class UsageRow(TableRow, table=True):
    """What a user's model calls took on a day (UTC, `2026-01-31`)."""

    __tablename__: ClassVar[str] = "user_usage"

    name: str = Field(primary_key=True)
    day: str = Field(primary_key=True)
    cost: float
    tokens: int = _big()


class StepUsageRow(TableRow, table=True):
    """The ledger of model calls: the usage of each step, kept when its session is deleted. `id`: of the part or message that ends
    the step. `owner`, `directory` and `project_id` are the session's at that time. `turns` is 1 for the first step that answers a
    prompt. A title's row has an empty message and no prompt."""

    __table_args__ = (Index("step_usage_by_prompt", "session_id", "prompt_id"), Index("step_usage_by_time", "time"))

    session_id: str = Field(primary_key=True)
    message_id: str = Field(primary_key=True)
    id: str = Field(primary_key=True)
    time: int = _big()
    owner: str
    project_id: str
    directory: str
    prompt_id: str | None
    agent: str
    provider_id: str
    model_id: str
    input: int = _big()
    output: int = _big()
    reasoning: int = _big()
    cache_read: int = _big()
    cache_write: int = _big()
    cost: float
    turns: int
    tool_calls: int


class WebhookRow(TableRow, table=True):
    """`events`: a JSON list of patterns. `secret` is encrypted. `role`: its owner's when it was switched on. `id_key`: the ids of
    its messages are made of it. `server` delivers it, up to the event `cursor` so far. `revision` grows with each change by its
    owner. Since `failed_since` the event after the cursor could not be delivered, in `attempts`; the next is at `retry_at`."""

    id: str = Field(primary_key=True)
    owner: str
    role: str
    url: str = _text()
    events: str = _text()
    directory: str | None = _text()
    session_id: str | None
    secret: str = _text()
    id_key: str
    created: int = _big()
    enabled: bool = True
    disabled_reason: str | None = _text()
    revision: int = 0
    server: str = ""
    cursor: int = _big()
    attempts: int = 0
    failed_since: int | None = _big()
    retry_at: int | None = _big()


class WebhookDeliveryRow(TableRow, table=True):
    """An attempt to deliver a message, which was accepted if there is no `error`. `time` in epoch milliseconds."""

    __table_args__ = (Index("webhook_delivery_by_webhook", "webhook_id", "seq"),)

    seq: int | None = _sequence()
    webhook_id: str = Field(sa_type=Text, foreign_key="webhook.id", ondelete="CASCADE")
    message_id: str
    type: str
    time: int = _big()
    attempt: int
    milliseconds: int
    status: int | None
    error: str | None = _text()


class ImportedSessionRow(TableRow, table=True):
    """A session that was imported from OpenCode, with a hash of its content. The row stays when the session is deleted here, so
    that the next import does not bring the session back."""

    id: str = Field(primary_key=True)
    fingerprint: str


class CounterRow(TableRow, table=True):
    """Numbers that several servers of one database share: the newest sequence of the `journal`, and the database's `identity`."""

    name: str = Field(primary_key=True)
    value: int = _big()


def _table(row: type[SQLModel]) -> Any:
    """Untyped, because the columns of a query's row are named where it is read."""
    return METADATA.tables[str(row.__tablename__)]


PROJECT = _table(ProjectRow)
SESSION = _table(SessionRow)
MESSAGE = _table(MessageRow)
PART = _table(PartRow)
PART_TEXT = _table(PartTextRow)
TODO = _table(TodoRow)
DIFF = _table(DiffRow)
APPROVAL = _table(ApprovalRow)
PENDING_REQUEST = _table(PendingRequestRow)
QUEUED_PROMPT = _table(QueuedPromptRow)
SHARE = _table(ShareRow)
EVENT = _table(EventRow)
LEASE = _table(LeaseRow)
REPLICA = _table(ReplicaRow)
DIRECTORY_STATE = _table(DirectoryStateRow)
EVENT_TOKEN = _table(EventTokenRow)
USER = _table(UserRow)
USER_KEY = _table(UserKeyRow)
USAGE = _table(UsageRow)
STEP_USAGE = _table(StepUsageRow)
WEBHOOK = _table(WebhookRow)
WEBHOOK_DELIVERY = _table(WebhookDeliveryRow)
IMPORTED_SESSION = _table(ImportedSessionRow)
COUNTER = _table(CounterRow)


def parsed(body: Any) -> dict[str, Any] | None:
    """None for a damaged body: no JSON, no object, or an empty one."""
    try:
        value = orjson.loads(body) if isinstance(body, str) else None
    except ValueError:
        return None
    return value if isinstance(value, dict) and value else None
