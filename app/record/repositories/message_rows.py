"""Messages and their parts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ARRAY, ColumnElement, Connection, Row, Select, Text, and_, any_, bindparam, func, literal_column, select

from app.record.repositories.session_rows import PageBeside
from app.record.statements import newest_answered
from app.record.tables import MESSAGE, PART, SESSION
from app.schema.errors import InvalidCursor


@dataclass(frozen=True, slots=True)
class StoredMessages:
    """Messages oldest first, and their parts in order; the rows have _MESSAGE_COLUMNS and _PART_COLUMNS. `more`: there are
    further messages beyond these."""

    messages: Sequence[Any]
    parts: Sequence[Any]
    more: bool = False


_MESSAGE_COLUMNS = (MESSAGE.c.seq, MESSAGE.c.id, MESSAGE.c.role, MESSAGE.c.parent_id, MESSAGE.c.body)
_OF_SESSION = MESSAGE.c.session_id == bindparam("session")
_MESSAGES = select(*_MESSAGE_COLUMNS).where(_OF_SESSION).order_by(MESSAGE.c.seq)
_PART_COLUMNS = (PART.c.message_id, PART.c.id, PART.c.type, PART.c.body)
_PARTS = select(*_PART_COLUMNS).where(PART.c.session_id == bindparam("session")).order_by(PART.c.message_id, PART.c.seq)
"""In the order of the index `part_by_message`. Queries need the order of parts within a message only."""


def all_messages(connection: Connection, session_id: str) -> StoredMessages:
    of_session = {"session": session_id}
    return StoredMessages(connection.execute(_MESSAGES, of_session).all(), connection.execute(_PARTS, of_session).all())


_SOME_MESSAGES = select(*_MESSAGE_COLUMNS).where(_OF_SESSION, MESSAGE.c.id.in_(bindparam("ids", expanding=True)))
_PARTS_OF_SOME = _PARTS.where(PART.c.message_id.in_(bindparam("ids", expanding=True)))


def some_messages(connection: Connection, session_id: str, message_ids: Collection[str]) -> StoredMessages:
    wanted = {"session": session_id, "ids": list(message_ids)}
    messages = sorted(connection.execute(_SOME_MESSAGES, wanted), key=lambda row: row.seq)
    return StoredMessages(messages, connection.execute(_PARTS_OF_SOME, wanted).all())


# Pages.

_OLDER = select(*_MESSAGE_COLUMNS).where(_OF_SESSION, MESSAGE.c.seq < bindparam("beside"))
_OLDER = _OLDER.order_by(MESSAGE.c.seq.desc()).limit(bindparam("limit"))
_NEWER = _MESSAGES.where(MESSAGE.c.seq > bindparam("beside")).limit(bindparam("limit"))
_BETWEEN = select(MESSAGE.c.id).where(_OF_SESSION, MESSAGE.c.seq.between(bindparam("first"), bindparam("last")))
_PARTS_BETWEEN = {
    "sqlite": _PARTS.where(PART.c.message_id.in_(_BETWEEN)),
    "postgresql": _PARTS.where(PART.c.message_id == any_(bindparam("ids", type_=ARRAY(Text)))),
}
"""By dialect. PostgreSQL takes a session that is new to its statistics for one row: it would read its messages for each part."""
_NEWEST = 2**63 - 1


def older_messages(connection: Connection, session_id: str, limit: int, before: int | None = None) -> StoredMessages:
    """The newest messages, of all or of those before a sequence."""
    return _page(connection, _OLDER, session_id, _NEWEST if before is None else before, limit)


def newer_messages(connection: Connection, session_id: str, limit: int, after: int = 0) -> StoredMessages:
    """The oldest messages, of all or of those after a sequence."""
    return _page(connection, _NEWER, session_id, after, limit)


def messages_beside(connection: Connection, session_id: str, at: PageBeside) -> StoredMessages:
    """Oldest first, whatever order is wanted. Raises InvalidCursor."""
    seq = None if at.anchor is None else message_seq(connection, session_id, at.anchor)
    if at.anchor is not None and seq is None:
        raise InvalidCursor(f"{at.anchor} is not there any more")
    if at.upward:
        return newer_messages(connection, session_id, at.limit, seq or 0)
    return older_messages(connection, session_id, at.limit, seq)


def history_pages(connection: Connection, session_id: str, size: int) -> Iterator[StoredMessages]:
    """The whole history, oldest first, `size` messages at a time."""
    page = newer_messages(connection, session_id, size)
    while page.messages:
        yield page
        page = newer_messages(connection, session_id, size, page.messages[-1].seq)


def _page(connection: Connection, query: Select[Any], session_id: str, beside: int, limit: int) -> StoredMessages:
    found = connection.execute(query, {"session": session_id, "beside": beside, "limit": limit + 1}).all()
    messages = sorted(found[:limit], key=lambda row: row.seq)
    return StoredMessages(messages, _parts_of(connection, session_id, messages), more=len(found) > limit)


def _parts_of(
    connection: Connection, session_id: str, messages: Sequence[Any], parts: Mapping[str, Select[Any]] = _PARTS_BETWEEN
) -> Any:
    """The parts of messages that follow each other."""
    if not messages:
        return []
    between = {"session": session_id, "first": messages[0].seq, "last": messages[-1].seq, "ids": [row.id for row in messages]}
    return connection.execute(parts[connection.dialect.name], between).all()


_SEQ = select(MESSAGE.c.seq).where(_OF_SESSION, MESSAGE.c.id == bindparam("message"))


def message_seq(connection: Connection, session_id: str, message_id: str) -> int | None:
    return connection.execute(_SEQ, {"session": session_id, "message": message_id}).scalar_one_or_none()


def is_at_or_after(connection: Connection, session_id: str, message_id: str, earlier_id: str) -> bool:
    """False also if the session has no message `earlier_id`."""
    seq, earlier = (message_seq(connection, session_id, each) for each in (message_id, earlier_id))
    return earlier is not None and seq is not None and seq >= earlier


# What the model is sent.

_SUMMARY = MESSAGE.alias("summary")
_BOUNDARY = (
    select(MESSAGE.c.seq)
    .join(_SUMMARY, (_SUMMARY.c.session_id == MESSAGE.c.session_id) & (_SUMMARY.c.parent_id == MESSAGE.c.id))
    .where(_OF_SESSION, _SUMMARY.c.boundary)
    .order_by(_SUMMARY.c.seq.desc())
    .limit(1)
    .correlate(None)
    .scalar_subquery()
)
_LIVE_MESSAGES = _MESSAGES.where(MESSAGE.c.seq >= func.coalesce(_BOUNDARY, 0)).with_only_columns(
    *_MESSAGE_COLUMNS[:-1], func.coalesce(MESSAGE.c.live_body, MESSAGE.c.body).label("body")
)
_LIVE_PART_COLUMNS = (*_PART_COLUMNS[:-1], func.coalesce(PART.c.live_body, PART.c.body).label("body"))
_LIVE_PARTS = {dialect: parts.with_only_columns(*_LIVE_PART_COLUMNS) for dialect, parts in _PARTS_BETWEEN.items()}


def live_messages(connection: Connection, session_id: str) -> StoredMessages:
    """The messages since the newest finished compaction: what a turn needs, however long the session is."""
    messages = connection.execute(_LIVE_MESSAGES, {"session": session_id}).all()
    return StoredMessages(messages, _parts_of(connection, session_id, messages, _LIVE_PARTS))


# Prompts and answers.

_INPUT_HASH: Select[Any] = select(MESSAGE.c.input_hash, MESSAGE.c.role).where(_OF_SESSION, MESSAGE.c.id == bindparam("message"))


def input_hash(connection: Connection, session_id: str, message_id: str) -> Row[Any] | None:
    return connection.execute(_INPUT_HASH, {"session": session_id, "message": message_id}).one_or_none()


def message_with_hash(connection: Connection, session_id: str, input_hash: str) -> str | None:
    query = select(MESSAGE.c.id).where(MESSAGE.c.session_id == session_id, MESSAGE.c.input_hash == input_hash)
    return connection.execute(query).scalars().first()


_NEWEST_ANSWER = _MESSAGES.where(MESSAGE.c.role == "assistant").order_by(None).order_by(MESSAGE.c.seq.desc()).limit(1)
_NEWEST_ANSWER_TO = _NEWEST_ANSWER.where(MESSAGE.c.parent_id == bindparam("prompt"))


def newest_answer(connection: Connection, session_id: str, prompt_id: str | None = None) -> StoredMessages:
    """The newest answer in a session, or to one prompt; empty if there is none."""
    query = _NEWEST_ANSWER if prompt_id is None else _NEWEST_ANSWER_TO
    messages = connection.execute(query, {"session": session_id, "prompt": prompt_id}).all()
    return StoredMessages(messages, _parts_of(connection, session_id, messages))


_UNANSWERED = (
    select(MESSAGE.c.id)
    .where(_OF_SESSION, MESSAGE.c.role == "user", MESSAGE.c.open)
    .where(MESSAGE.c.seq > func.coalesce(newest_answered("session"), 0))
    .order_by(MESSAGE.c.seq.desc())
    .limit(1)
)


def unanswered_prompt(connection: Connection, session_id: str) -> str | None:
    """The newest prompt that waits for an answer and came after all answered prompts."""
    return connection.execute(_UNANSWERED, {"session": session_id}).scalar_one_or_none()


_OPEN_PROMPTS = select(MESSAGE.c.id).where(_OF_SESSION, MESSAGE.c.role == "user", MESSAGE.c.open)


def open_prompts(connection: Connection, session_id: str) -> set[str]:
    """The prompts whose turn has not ended."""
    return set(connection.execute(_OPEN_PROMPTS, {"session": session_id}).scalars())


_PROMPT = MESSAGE.alias("prompt")
_ASKED = select(_PROMPT.c.seq).where(_PROMPT.c.session_id == bindparam("session"), _PROMPT.c.id == bindparam("prompt"))
_IS_ANSWER = and_(_OF_SESSION, MESSAGE.c.parent_id == bindparam("prompt"), MESSAGE.c.seq > _ASKED.scalar_subquery())
"""An answer follows its prompt, so earlier messages are skipped."""
_ANSWERS = select(MESSAGE.c.id).where(_IS_ANSWER).order_by(MESSAGE.c.seq)


def answers_to(connection: Connection, session_id: str, message_id: str) -> list[str]:
    asked = {"session": session_id, "prompt": message_id}
    return list(connection.execute(_ANSWERS, asked).scalars())


_NEXT_ANSWERED = select(MESSAGE.c.parent_id).where(_OF_SESSION, MESSAGE.c.role == "assistant")
_NEXT_ANSWERED = _NEXT_ANSWERED.where(MESSAGE.c.seq > _ASKED.scalar_subquery()).order_by(MESSAGE.c.seq).limit(1)


def next_answered(connection: Connection, session_id: str, prompt_id: str) -> str | None:
    """The prompt that the first answer after this prompt is for: another one if they share a turn."""
    return connection.execute(_NEXT_ANSWERED, {"session": session_id, "prompt": prompt_id}).scalar_one_or_none()


# Files and snapshots.

_IS_PATCH = PART.c.type == literal_column("'patch'")
"""A literal instead of a bound value: the partial index is used only if the statement itself contains its condition."""
_PATCHES = select(*_PART_COLUMNS).where(PART.c.session_id == bindparam("session"), _IS_PATCH).order_by(PART.c.seq)


def patches(connection: Connection, session_id: str) -> Sequence[Row[Any]]:
    """The patch parts of a session, in order."""
    return connection.execute(_PATCHES, {"session": session_id}).all()


_PATCHES_VERSION = select(func.count(), func.max(PART.c.seq)).where(
    PART.c.session_id == bindparam("session"), _IS_PATCH, PART.c.seq > literal_column("0")
)
"""All patches have such a sequence. Without that condition SQLite reads all parts of the session, unless the index of patches was
made last."""


def patches_version(connection: Connection, session_id: str) -> str:
    """Changes whenever a patch part is added or removed."""
    count, newest = connection.execute(_PATCHES_VERSION, {"session": session_id}).one()
    return f"{count}:{newest}"


def _edge(messages: ColumnElement[bool], part_type: str, *, last: bool) -> Any:
    """Searches the messages from one end for the first with a snapshot."""
    of_message = (PART.c.session_id == MESSAGE.c.session_id) & (PART.c.message_id == MESSAGE.c.id)
    snapshots = select(PART.c.snapshot).where(of_message, PART.c.type == part_type, PART.c.snapshot.is_not(None))
    snapshot = snapshots.order_by(PART.c.seq.desc() if last else PART.c.seq).limit(1).scalar_subquery()
    order = MESSAGE.c.seq.desc() if last else MESSAGE.c.seq
    return select(snapshot).where(messages, snapshot.is_not(None)).order_by(order).limit(1).scalar_subquery()


_EDGE_SNAPSHOTS = select(
    SESSION.c.diff_basis,
    _edge(_OF_SESSION, "step-start", last=False),
    _edge(_OF_SESSION, "step-finish", last=True),
    _edge(_IS_ANSWER, "step-start", last=False),
    _edge(_IS_ANSWER, "step-finish", last=True),
).where(SESSION.c.id == bindparam("session"))


def edge_snapshots(connection: Connection, session_id: str, prompt_id: str) -> Sequence[str | None]:
    """The session's diff basis; its first snapshot before a step and its last one after a step; and these two of the answers to
    one prompt. All None for an unknown session."""
    return connection.execute(_EDGE_SNAPSHOTS, {"session": session_id, "prompt": prompt_id}).one_or_none() or 5 * [None]


# Forks.


def history_extent(
    connection: Connection, session_id: str, message_id: str | None
) -> tuple[int, tuple[int, int], tuple[int, int]] | None:
    """The sequence of the first message after the history up to a message, or with None of the whole one; and the first and last
    sequence of all messages and of all parts. None for an unknown message."""
    queries = [select(func.min(of.c.seq), func.max(of.c.seq)).where(of.c.session_id == session_id) for of in (MESSAGE, PART)]
    messages, parts = ((first or 0, last or 0) for first, last in (connection.execute(query).one() for query in queries))
    before = messages[1] + 1 if message_id is None else message_seq(connection, session_id, message_id)
    return None if before is None else (before, messages, parts)
