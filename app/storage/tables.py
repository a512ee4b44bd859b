"""The tables. Identity and what is searched by stand in columns; the rest of a value is its JSON in `body`.

A message's or part's body leaves out its ids, so that a fork copies bodies as they are and a read splices them without parsing.
`seq` is the server's order: it ascends as rows are inserted and never depends on a clock or on an id.
"""

from typing import Any, ClassVar

from sqlalchemy import BigInteger, Column, ForeignKey, Index, Integer, Text, UniqueConstraint, false, text
from sqlmodel import Field, SQLModel

_Sequence = BigInteger().with_variant(Integer, "sqlite")


def _sequence_column() -> Column[int]:
    return Column("seq", _Sequence, primary_key=True, autoincrement=True)


def _partial_index(name: str, *columns: str, where: str) -> Index:
    return Index(name, *columns, sqlite_where=text(where), postgresql_where=text(where))


class ProjectRow(SQLModel, table=True):
    __tablename__: ClassVar[str] = "project"

    id: str = Field(primary_key=True)
    updated: int = Field(sa_type=BigInteger)
    body: str = Field(sa_type=Text)


class SessionRow(SQLModel, table=True):
    """`body` is the whole Session; `title_folded` is what a search looks in; `diff_basis`, a JSON list, says
    what the stored diff was computed from."""

    __tablename__: ClassVar[str] = "session"
    __table_args__ = (
        Index("session_by_project", "project_id", "seq"),
        Index("session_by_parent", "parent_id", "seq"),
        Index("session_reverting", "seq", sqlite_where=text("reverting = 1"), postgresql_where=text("reverting")),
        {"sqlite_autoincrement": True},
    )

    seq: int | None = Field(default=None, sa_column=_sequence_column())
    id: str = Field(unique=True)
    project_id: str
    directory: str
    parent_id: str | None = None
    title_folded: str
    updated: int = Field(sa_type=BigInteger)
    body: str = Field(sa_type=Text)
    diff_basis: str | None = Field(default=None, sa_type=Text)
    reverting: bool = Field(default=False, sa_column_kwargs={"server_default": false()})
    """Files are being put back; left set by a server that was killed meanwhile."""


class MessageRow(SQLModel, table=True):
    """`open` marks an answer not yet completed, or a prompt that waits for one; `boundary` a finished compaction summary;
    `input_hash` what a prompt said, so that one sent twice is known."""

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
    """What a turn reads where that is less than the body: a prompt without its diffs."""


class PartRow(SQLModel, table=True):
    """`snapshot` is the tree that a step began with or left.

    No index has all parts of a session by `seq`: asked for the parts of some messages in that order, SQLite would walk it from
    its beginning instead of looking these messages up."""

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
    """What the model's history is made of where that is less than the body: a pruned output is not read again at every step."""
    snapshot: str | None = None


class TodoRow(SQLModel, table=True):
    __tablename__: ClassVar[str] = "todo"

    session_id: str = Field(sa_column=Column(Text, ForeignKey("session.id", ondelete="CASCADE"), primary_key=True))
    body: str = Field(sa_type=Text)


class DiffRow(SQLModel, table=True):
    __tablename__: ClassVar[str] = "session_diff"

    session_id: str = Field(sa_column=Column(Text, ForeignKey("session.id", ondelete="CASCADE"), primary_key=True))
    body: str = Field(sa_type=Text)


class ApprovalRow(SQLModel, table=True):
    """What a person allowed with `always`, for a whole project; `session_id` is where it was said."""

    __tablename__: ClassVar[str] = "permission_approval"

    project_id: str = Field(primary_key=True)
    permission: str = Field(primary_key=True)
    pattern: str = Field(primary_key=True)
    session_id: str = Field(index=True)


class PendingAskRow(SQLModel, table=True):
    """A permission request or a question that waits for a person; `kind` is `permission` or `question`."""

    __tablename__: ClassVar[str] = "pending_ask"
    __table_args__ = ({"sqlite_autoincrement": True},)

    seq: int | None = Field(default=None, sa_column=_sequence_column())
    id: str = Field(unique=True)
    kind: str
    session_id: str = Field(sa_column=Column(Text, ForeignKey("session.id", ondelete="CASCADE"), nullable=False, index=True))
    directory: str
    body: str = Field(sa_type=Text)


class ShareRow(SQLModel, table=True):
    """`id` stands in the link; whoever knows it may read the session."""

    __tablename__: ClassVar[str] = "share"

    session_id: str = Field(sa_column=Column(Text, ForeignKey("session.id", ondelete="CASCADE"), primary_key=True))
    id: str = Field(unique=True)
    created: int = Field(sa_type=BigInteger)


class EventRow(SQLModel, table=True):
    """The journal of durable events; `seq` is the SSE id. No directory: an event of the whole server."""

    __tablename__: ClassVar[str] = "event_journal"
    __table_args__ = (Index("event_by_time", "time", "seq", "bytes"),)

    seq: int = Field(sa_column=Column(_Sequence, primary_key=True, autoincrement=False))
    directory: str | None = None
    time: int = Field(sa_type=BigInteger)
    payload: str = Field(sa_type=Text)
    bytes: int = Field(sa_column=Column(Integer, nullable=False, server_default="0"))
    """Of the payload. In the index with the time, so that no payload is read to find out what the journal holds."""


class LeaseRow(SQLModel, table=True):
    """Which server runs a session now; a write under an older generation is refused."""

    __tablename__: ClassVar[str] = "run_lease"

    session_id: str = Field(sa_column=Column(Text, ForeignKey("session.id", ondelete="CASCADE"), primary_key=True))
    owner: str
    generation: int
    heartbeat: int = Field(sa_type=BigInteger)


class CounterRow(SQLModel, table=True):
    """Sequences that several servers of one database share: `journal`."""

    __tablename__: ClassVar[str] = "counter"

    name: str = Field(primary_key=True)
    value: int = Field(sa_type=BigInteger)


def _table(model: type[SQLModel]) -> Any:
    return model.__table__  # type: ignore[attr-defined]


SESSION, MESSAGE, PART = _table(SessionRow), _table(MessageRow), _table(PartRow)
TODO, DIFF, SHARE = _table(TodoRow), _table(DiffRow), _table(ShareRow)
PROJECT, APPROVAL, ASK = _table(ProjectRow), _table(ApprovalRow), _table(PendingAskRow)
EVENT, LEASE, COUNTER = _table(EventRow), _table(LeaseRow), _table(CounterRow)
