"""The tables. Ids and searched values are columns; the rest of a value is JSON in `body`.

The body of a message or part omits its ids, so that a fork copies bodies unchanged and a read splices the ids in without parsing.
`seq` is the order: it ascends as rows are inserted and does not depend on a clock or an id.

They are tables of SQLAlchemy Core, without mapped classes: no row is ever an object, and the mapper and the models of the classes
took a server 9 MB and a sixth of a second of its start.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)
from sqlalchemy.schema import SchemaItem

METADATA = MetaData()
"""All of them, as migrations and tests compare them with a database."""

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

_Sequence = BigInteger().with_variant(Integer, "sqlite")


def _table(name: str, *columns: SchemaItem, **options: Any) -> Any:
    """Untyped: how many columns a row of a query has is said where it is read."""
    return Table(name, METADATA, *columns, **options)


def _required(name: str, kind: Any, *constraints: ForeignKey, **options: Any) -> Column[Any]:
    return Column(name, kind, *constraints, nullable=False, **options)


def _sequence() -> Column[int]:
    return Column("seq", _Sequence, primary_key=True, autoincrement=True)


def _of_session(**options: Any) -> Column[str]:
    return _required("session_id", Text, ForeignKey("session.id", ondelete="CASCADE"), **options)


def _flag(name: str) -> Column[bool]:
    return _required(name, Boolean, default=False, server_default=false())


def _token_sum(name: str) -> Column[int]:
    return _required(name, BigInteger, default=0, server_default=text("0"))


PROJECT = _table(
    "project",
    Column("id", String, primary_key=True),
    _required("updated", BigInteger),
    _required("body", Text),
)

SESSION = _table(
    "session",
    _sequence(),
    _required("id", String, unique=True),
    _required("project_id", String),
    _required("directory", String),
    Column("parent_id", String),
    _required("title_folded", String),
    _required("updated", BigInteger),
    _required("body", Text),
    Column("diff_basis", Text),
    # Set while a revert restores files; stays set if the server is killed meanwhile.
    _flag("reverting"),
    # The user it belongs to; empty for nobody's, as on a server without users.
    _required("owner", String, default="", server_default=text("''")),
    Column("path", Text),
    _flag("archived"),
    _required("cost", Float, default=0, server_default=text("0")),
    _token_sum("tokens_input"),
    _token_sum("tokens_output"),
    _token_sum("tokens_reasoning"),
    _token_sum("tokens_cache_read"),
    _token_sum("tokens_cache_write"),
    # The sums as the beginning of the session's JSON.
    _required("head", Text, server_default=NO_SUMS),
    Index("session_by_project", "project_id", "seq"),
    Index("session_by_parent", "parent_id", "seq"),
    Index("session_by_directory", "directory", "owner"),
    Index("session_by_update", "updated", "seq"),
    sqlite_autoincrement=True,
)
"""`head` and `body` together are the whole Session (`app.storage.session_head`). Searches use `title_folded`. `diff_basis`, a
JSON list, identifies the trees that the stored diff was computed from."""

MESSAGE = _table(
    "message",
    _sequence(),
    _of_session(),
    _required("id", String),
    _required("role", String),
    Column("parent_id", String),
    _required("open", Boolean, default=False),
    _required("boundary", Boolean, default=False),
    Column("input_hash", String),
    _required("body", Text),
    # A smaller body for turns, if there is one: a prompt without its diffs.
    Column("live_body", Text),
    UniqueConstraint("session_id", "id"),
    Index("message_by_session", "session_id", "seq"),
    Index("message_open", "open"),
    sqlite_autoincrement=True,
)
"""`open`: an unfinished answer, or a prompt without an answer. `boundary`: a finished compaction summary. `input_hash`: a hash
of the prompt's input, which identifies a prompt that is sent twice."""

PART = _table(
    "part",
    _sequence(),
    _of_session(),
    _required("message_id", String),
    _required("id", String),
    _required("type", String),
    _required("body", Text),
    # A smaller body for the model's history, if there is one: without a pruned output.
    Column("live_body", Text),
    Column("snapshot", String),
    UniqueConstraint("session_id", "message_id", "id"),
    Index("part_by_message", "session_id", "message_id", "seq"),
    sqlite_autoincrement=True,
)
"""`snapshot`: the tree at the start or end of a step.

There is no index over (session, `seq`): for the parts of some messages in that order, SQLite would scan it from its start
instead of looking the messages up."""

PART_TEXT = _table(
    "part_text",
    _required("part_seq", _Sequence, ForeignKey("part.seq", ondelete="CASCADE"), primary_key=True, autoincrement=False),
    _required("role", String),
    _required("kind", String),
    _required("time", BigInteger),
    _flag("indexed"),
    _required("text", Text),
    Index("part_text_facts", "part_seq", "time", "role", "kind"),
)
"""What searches look at: the `text` of a finished part, encoded. It is there from the part's commit on, and in the index of
trigrams (app/storage/text_index.py) from when `indexed` is set, some seconds later; until then searches read the text itself.
`time` in epoch milliseconds."""

TODO = _table(
    "todo",
    _of_session(primary_key=True),
    _required("body", Text),
)

DIFF = _table(
    "session_diff",
    _of_session(primary_key=True),
    _required("body", Text),
)

APPROVAL = _table(
    "permission_approval",
    Column("project_id", String, primary_key=True),
    Column("permission", String, primary_key=True),
    Column("pattern", String, primary_key=True),
    _required("session_id", String, index=True),
)
"""A reply of `always`, valid for the whole project; `session_id` is the session in which the user gave it."""

PENDING_REQUEST = _table(
    "pending_ask",
    _sequence(),
    _required("id", String, unique=True),
    _required("kind", String),
    _of_session(index=True),
    _required("directory", String),
    _required("body", Text),
    Column("answer", Text),
    sqlite_autoincrement=True,
)
"""A permission request or a question that waits for a person, or whose `answer` (JSON) waits for the call that asked; `kind`
is `permission` or `question`."""

QUEUED_PROMPT = _table(
    "queued_prompt",
    _sequence(),
    _required("id", String, unique=True),
    _of_session(index=True),
    Column("message_id", String),
    _required("directory", String),
    _required("created", BigInteger),
    _required("input_hash", String),
    _required("input", Text),
    _required("message", Text),
    UniqueConstraint("session_id", "message_id"),
    sqlite_autoincrement=True,
)
"""A prompt that waits for a turn of its own, in the order of `seq`. `input` is what the client sent, `input_hash` a hash of
what it says, `message` the message that it becomes, with its parts."""

SHARE = _table(
    "share",
    _of_session(primary_key=True),
    _required("id", String, unique=True),
    _required("created", BigInteger),
)
"""`id` is the secret in the link: anyone who knows it may read the session."""

EVENT = _table(
    "event_journal",
    _required("seq", _Sequence, primary_key=True, autoincrement=False),
    Column("directory", String),
    _required("time", BigInteger),
    _required("payload", Text),
    # The size of the payload. It is in the index, so that trimming the journal reads no payload.
    _required("bytes", Integer, server_default="0"),
    # The user whose session it is of, empty for nobody's; None for an event of no session.
    Column("owner", String),
    Index("event_by_time", "time", "seq", "bytes"),
)
"""The event journal; `seq` is the SSE id. No directory: an event of the whole server."""

LEASE = _table(
    "run_lease",
    _of_session(primary_key=True),
    _required("owner", String),
    _required("generation", Integer),
    _required("heartbeat", BigInteger),
    Column("directory", Text),
    Column("status", Text),
    _flag("aborting"),
    _required("takeovers", Integer, default=0, server_default="0"),
)
"""Which server runs a session now (`owner` is empty when none does); a write under an older generation is refused.

`status` is the JSON that the session's status is announced with, in `directory`; `aborting` asks the owner to end the run;
`takeovers` counts the servers in a row that died with the same turn."""

REPLICA = _table(
    "replica",
    Column("id", String, primary_key=True),
    _required("started", BigInteger),
    _required("heartbeat", BigInteger),
    _required("version", String),
    _required("address", String),
    Column("volume", String),
    Column("journal_lag", BigInteger),
)
"""A server of this database. `volume` names the data directory that it sees; `journal_lag` counts the events that its clients
were still to be given at its `heartbeat`."""

DIRECTORY_STATE = _table(
    "directory_state",
    Column("directory", String, primary_key=True),
    Column("name", String, primary_key=True),
    _required("value", Text),
    _required("server", String),
    _required("revision", BigInteger),
)
"""What the servers of a database must agree on about a directory (empty: about all), by name. `server` wrote it; `revision`
grows with each write of any row."""

EVENT_TOKEN = _table(
    "event_token",
    Column("hash", String, primary_key=True),
    _required("created", BigInteger),
    _required("principal", Text, server_default=text("'{}'")),
)
"""A login for one event stream, of the `principal` (JSON). `created` in epoch milliseconds."""

USER = _table(
    "user_account",
    Column("name", String, primary_key=True),
    _required("role", String),
    _required("roots", Text),
    _required("created", BigInteger),
    Column("max_cost", Float),
    Column("max_tokens", BigInteger),
)
"""`roots` is a JSON list of directories. `max_cost` (dollars) and `max_tokens` are for a day."""

USER_KEY = _table(
    "user_key",
    Column("name", String, primary_key=True),
    Column("provider_id", String, primary_key=True),
    _required("body", Text),
)
"""A user's own key of a provider; `body` is encrypted."""

USAGE = _table(
    "user_usage",
    Column("name", String, primary_key=True),
    Column("day", String, primary_key=True),
    _required("cost", Float),
    _required("tokens", BigInteger),
)
"""What a user's model calls took on a day (UTC, `2026-01-31`)."""

STEP_USAGE = _table(
    "step_usage",
    Column("session_id", String, primary_key=True),
    Column("message_id", String, primary_key=True),
    Column("id", String, primary_key=True),
    _required("time", BigInteger),
    _required("owner", String),
    _required("project_id", String),
    _required("directory", String),
    Column("prompt_id", String),
    _required("agent", String),
    _required("provider_id", String),
    _required("model_id", String),
    _required("input", BigInteger),
    _required("output", BigInteger),
    _required("reasoning", BigInteger),
    _required("cache_read", BigInteger),
    _required("cache_write", BigInteger),
    _required("cost", Float),
    # 1 for the first step that answers a prompt.
    _required("turns", Integer),
    _required("tool_calls", Integer),
    Index("step_usage_by_prompt", "session_id", "prompt_id"),
    Index("step_usage_by_time", "time"),
)
"""The ledger of model calls: what each step took, kept when its session is deleted. `id` is that of the part or message that
ends the step. `owner`, `directory` and `project_id` are the session's at that time. A title's row has an empty message and no
prompt."""

WEBHOOK = _table(
    "webhook",
    Column("id", String, primary_key=True),
    _required("owner", String),
    _required("role", String),
    _required("url", Text),
    _required("events", Text),
    Column("directory", Text),
    Column("session_id", String),
    _required("secret", Text),
    _required("id_key", String),
    _required("created", BigInteger),
    _required("enabled", Boolean, default=True),
    Column("disabled_reason", Text),
    _required("revision", Integer, default=0),
    _required("server", String, default=""),
    _required("cursor", BigInteger),
    _required("attempts", Integer, default=0),
    Column("failed_since", BigInteger),
    Column("retry_at", BigInteger),
)
"""`events` is a JSON list of patterns, `secret` is encrypted, `role` is its owner's when it was switched on, of `id_key` the
ids of its messages are made. `server` delivers it, up to the event `cursor` by now; `revision` grows with each change by its
owner. Since `failed_since` the event behind the cursor could not be delivered, in `attempts`; the next is at `retry_at`."""

WEBHOOK_DELIVERY = _table(
    "webhook_delivery",
    _sequence(),
    _required("webhook_id", Text, ForeignKey("webhook.id", ondelete="CASCADE")),
    _required("message_id", String),
    _required("type", String),
    _required("time", BigInteger),
    _required("attempt", Integer),
    _required("milliseconds", Integer),
    Column("status", Integer),
    Column("error", Text),
    Index("webhook_delivery_by_webhook", "webhook_id", "seq"),
)
"""An attempt to deliver a message; without an `error` it was accepted. `time` in epoch milliseconds."""

IMPORTED_SESSION = _table(
    "imported_session",
    Column("id", String, primary_key=True),
    _required("fingerprint", String),
)
"""A session that was imported from OpenCode, with a hash of what was imported. It stays when the session is deleted here, so
that the next import does not bring the session back."""

COUNTER = _table(
    "counter",
    Column("name", String, primary_key=True),
    _required("value", BigInteger),
)
"""Numbers that several servers of one database share: the newest sequence of the `journal`, the database's `identity`, and the
newest of the old parts whose text searches do not have yet (`unsearched_parts`; 0 for none)."""
