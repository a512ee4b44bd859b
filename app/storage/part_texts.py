"""Looking for words in the texts of parts, and keeping the index of them. Portable between SQLite and PostgreSQL."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    LargeBinary,
    Row,
    Select,
    and_,
    cast,
    column,
    exists,
    func,
    literal,
    literal_column,
    select,
    table,
    update,
)

from app.storage.tables import COUNTER, MESSAGE, PART, PART_TEXT, SESSION
from app.storage.text_index import FTS, facets, has_text_index

ROLES = ("user", "assistant")
KINDS = ("text", "reasoning", "tool")

RECENT = 1_000
"""How many of the newest texts PostgreSQL reads before it takes its index, which knows no order: what occurs more often than once
in fifty texts is found among them, and of what is left the index finds few."""
SMALL_SCOPE = 2_000
"""Parts of a session or directory that are read through, rather than all that the index finds of others."""
MEASURED_SCOPE = 20_000
"""Parts of which the oldest and newest are looked up, so that the index is read between them only."""
MAX_TRIGRAMS = 64
"""That the index is asked for; the text is compared anyway."""
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class TextFilter:
    """`words` as the index has them. `before`: only older ones than this sequence. `owner` None: whoever they belong to. `since`,
    `until`: in milliseconds."""

    words: tuple[str, ...]
    limit: int
    before: int | None = None
    session_id: str | None = None
    directory: str | None = None
    owner: str | None = None
    role: str | None = None
    kind: str | None = None
    since: float | None = None
    until: float | None = None


def find_texts(connection: Connection, wanted: TextFilter) -> Sequence[Row[Any]]:
    """The parts in which all words occur, newest first, with `role` and `time`, and the body of their `session`."""
    seqs = sorted({*_indexed(connection, wanted), *_unindexed(connection, wanted)}, reverse=True)[: wanted.limit]
    return connection.execute(_FOUND.where(PART_TEXT.c.part_seq.in_(seqs))).all()


_FOUND: Select[Any] = (
    select(
        PART.c.seq,
        PART.c.session_id,
        PART.c.message_id,
        PART.c.id,
        PART.c.body,
        PART_TEXT.c.role,
        PART_TEXT.c.time,
        SESSION.c.body.label("session"),
    )
    .join(PART_TEXT, PART_TEXT.c.part_seq == PART.c.seq)
    .join(SESSION, SESSION.c.id == PART.c.session_id)
    .order_by(PART.c.seq.desc())
)
_FTS = table(FTS, column("rowid"), column(FTS))
_IS_INDEXED = PART_TEXT.c.indexed
_SQLITE_UNINDEXED: ColumnElement[bool] = literal_column("indexed = 0")
_UNINDEXED = ~PART_TEXT.c.indexed
"""As the condition of the partial index says it."""


@dataclass(frozen=True, slots=True)
class _Extent:
    """How many parts, and the sequences of the oldest and newest of them."""

    count: float
    oldest: int
    newest: int

    @property
    def within(self) -> ColumnElement[bool]:
        bounds = literal(self.oldest, BigInteger), literal(self.newest, BigInteger)
        is_within: ColumnElement[bool] = PART_TEXT.c.part_seq.between(*bounds)
        return is_within


_EVERYWHERE = _Extent(math.inf, 0, _LARGEST)


def _indexed(connection: Connection, wanted: TextFilter) -> Iterable[int]:
    scope = _scope_extent(connection, wanted)
    if scope.count <= SMALL_SCOPE:
        return connection.execute(_of_scope(connection, wanted)).scalars()
    recent = _recent_extent(connection, wanted, scope)
    if not recent.count:
        return []
    if connection.dialect.name != "sqlite":
        return _of_recent_or_trigrams(connection, wanted, scope, recent)
    bounds = _Extent(math.inf, scope.oldest, recent.newest)
    match = _match(wanted)
    if match is None or not has_text_index(connection):
        return connection.execute(_reading(connection, wanted, _IS_INDEXED, bounds)).scalars()
    return connection.execute(_of_fts(connection, wanted, match, bounds)).scalars()


def _unindexed(connection: Connection, wanted: TextFilter) -> Iterable[int]:
    which = _SQLITE_UNINDEXED if connection.dialect.name == "sqlite" else _UNINDEXED
    return connection.execute(_reading(connection, wanted, which, _EVERYWHERE)).scalars()


def _of_recent_or_trigrams(connection: Connection, wanted: TextFilter, scope: _Extent, recent: _Extent) -> Iterable[int]:
    found = connection.execute(_of_recent(connection, wanted, recent)).scalars().all()
    if len(found) == wanted.limit or recent.count < RECENT:
        return found
    older = _Extent(math.inf, scope.oldest, recent.oldest - 1)
    return [*found, *connection.execute(_of_trigrams(connection, wanted, older)).scalars()]


def _reading(connection: Connection, wanted: TextFilter, which: ColumnElement[bool], bounds: _Extent) -> Select[Any]:
    """The texts themselves, newest first."""
    return _texts(connection, wanted, which, bounds).order_by(PART_TEXT.c.part_seq.desc()).limit(wanted.limit)


def _of_recent(connection: Connection, wanted: TextFilter, recent: _Extent) -> Select[Any]:
    """The texts themselves, newest first: the limit within keeps PostgreSQL from taking its index."""
    texts = select(PART_TEXT.c.part_seq, PART_TEXT.c.text).where(_IS_INDEXED, recent.within, *_plain(wanted))
    if scope := _scope(wanted):
        texts = texts.join(PART, PART.c.seq == PART_TEXT.c.part_seq).where(*scope)
    newest = texts.order_by(PART_TEXT.c.part_seq.desc()).limit(RECENT).subquery()
    contained = [newest.c.text.contains(word, autoescape=True) for word in wanted.words]
    return select(newest.c.part_seq).where(*contained).order_by(newest.c.part_seq.desc()).limit(wanted.limit)


def _of_trigrams(connection: Connection, wanted: TextFilter, bounds: _Extent) -> Select[Any]:
    """Apart from the limit, for which PostgreSQL would rather read texts than its index."""
    found = _texts(connection, wanted, _IS_INDEXED, bounds).cte("found").prefix_with("MATERIALIZED")
    return select(found.c.part_seq).order_by(found.c.part_seq.desc()).limit(wanted.limit)


def _texts(connection: Connection, wanted: TextFilter, which: ColumnElement[bool], bounds: _Extent) -> Select[Any]:
    query = select(PART_TEXT.c.part_seq).where(which, bounds.within, *_plain(wanted), *_contained(connection, wanted.words))
    if scope := _scope(wanted):
        query = query.join(PART, PART.c.seq == PART_TEXT.c.part_seq).where(*scope)
    return query


def _of_scope(connection: Connection, wanted: TextFilter) -> Select[Any]:
    """From the parts of some sessions to their texts."""
    of_scope = select(PART.c.seq).where(*_scope(wanted))
    contained = _contained(connection, wanted.words)
    query = select(PART_TEXT.c.part_seq).where(PART_TEXT.c.part_seq.in_(of_scope), _IS_INDEXED, *_plain(wanted), *contained)
    return query.order_by(PART_TEXT.c.part_seq.desc()).limit(wanted.limit)


def _of_fts(connection: Connection, wanted: TextFilter, match: str, bounds: _Extent) -> Select[Any]:
    """From the index, newest first, to the texts: as many as it takes."""
    contained = _contained(connection, wanted.words)
    is_wanted = exists().where(PART_TEXT.c.part_seq == _FTS.c.rowid, *_plain(wanted), *contained)
    if scope := _scope(wanted):
        is_wanted = is_wanted.where(PART.c.seq == PART_TEXT.c.part_seq, *scope)
    within = _FTS.c.rowid.between(bounds.oldest, bounds.newest)
    query = select(_FTS.c.rowid).where(_FTS.c[FTS].op("MATCH")(match), within, is_wanted)
    return query.order_by(_FTS.c.rowid.desc()).limit(wanted.limit)


def _match(wanted: TextFilter) -> str | None:
    """What is asked of FTS5; None for words that are too short for it."""
    trigrams = dict.fromkeys(word[at : at + 3] for word in wanted.words for at in range(len(word) - 2))
    if not trigrams:
        return None
    terms = [_quoted(trigram) for trigram in list(trigrams)[:MAX_TRIGRAMS]]
    if wanted.role or wanted.kind:
        said = facets([wanted.role] if wanted.role else [*ROLES], [wanted.kind] if wanted.kind else [*KINDS])
        terms.append(f"({' OR '.join(map(_quoted, said))})")
    return " AND ".join(terms)


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _contained(connection: Connection, words: Sequence[str]) -> list[ColumnElement[bool]]:
    if connection.dialect.name == "sqlite":
        return [func.instr(PART_TEXT.c.text, word) > 0 for word in words]
    return [PART_TEXT.c.text.contains(word, autoescape=True) for word in words]


def _plain(wanted: TextFilter) -> list[ColumnElement[bool]]:
    """What the row of the text itself says, and the index `part_text_facts`."""
    text = PART_TEXT.c
    return [
        condition
        for value, condition in (
            (wanted.before, text.part_seq < literal(wanted.before, BigInteger)),
            (wanted.role, text.role == wanted.role),
            (wanted.kind, text.kind == wanted.kind),
            (wanted.since, text.time >= _whole(math.ceil, wanted.since)),
            (wanted.until, text.time <= _whole(math.floor, wanted.until)),
        )
        if value is not None
    ]


def _scope(wanted: TextFilter) -> list[ColumnElement[bool]]:
    """Whose parts: of a session, a directory, a user."""
    conditions = []
    if wanted.session_id is not None:
        conditions.append(PART.c.session_id == wanted.session_id)
    sessions = select(SESSION.c.id)
    if wanted.directory is not None:
        sessions = sessions.where(SESSION.c.directory == wanted.directory)
    if wanted.owner is not None:
        sessions = sessions.where(SESSION.c.owner == wanted.owner, SESSION.c.owner != literal_column("''"))
    if wanted.directory is not None or wanted.owner is not None:
        conditions.append(PART.c.session_id.in_(sessions))
    return conditions


def _whole(rounded: Callable[[float], int], time: float | None) -> ColumnElement[int]:
    return literal(max(-_LARGEST, min(rounded(time or 0), _LARGEST)), BigInteger)


def _scope_extent(connection: Connection, wanted: TextFilter) -> _Extent:
    """Of the parts in the scope. Counted up to MEASURED_SCOPE only; beyond that, or without a scope, they may be anywhere."""
    scope = _scope(wanted)
    if not scope:
        return _EVERYWHERE
    extent = _extent(connection, select(PART.c.seq).where(*scope).limit(MEASURED_SCOPE + 1))
    return extent if extent.count <= MEASURED_SCOPE else _EVERYWHERE


def _recent_extent(connection: Connection, wanted: TextFilter, scope: _Extent) -> _Extent:
    """Of the newest texts of which their rows say what is wanted: found in an index that has these columns."""
    newest = select(PART_TEXT.c.part_seq.label("seq")).where(scope.within, *_plain(wanted))
    return _extent(connection, newest.order_by(PART_TEXT.c.part_seq.desc()).limit(RECENT))


def _extent(connection: Connection, of: Select[Any]) -> _Extent:
    some = of.subquery()
    count, oldest, newest = connection.execute(select(func.count(), func.min(some.c.seq), func.max(some.c.seq))).one()
    return _Extent(count, oldest or 0, newest or 0)


# Keeping the index.

_UNSEARCHED = COUNTER.c.name == literal_column("'unsearched_parts'")


def unsearched_parts(connection: Connection) -> int:
    """The newest sequence of the parts from before whose text is not there yet; 0 when all are."""
    return connection.execute(select(COUNTER.c.value).where(_UNSEARCHED)).scalar_one_or_none() or 0


def set_unsearched_parts(connection: Connection, seq: int) -> None:
    connection.execute(update(COUNTER).where(_UNSEARCHED).values(value=seq))


def old_parts(connection: Connection, upto: int, limit: int) -> Sequence[Row[Any]]:
    """Of any type, newest first, with the body of their message. In SQLite bodies are bytes: they may be damaged."""
    of_message = and_(MESSAGE.c.session_id == PART.c.session_id, MESSAGE.c.id == PART.c.message_id)
    bodies: list[ColumnElement[Any]] = [PART.c.body, func.coalesce(MESSAGE.c.live_body, MESSAGE.c.body)]
    if connection.dialect.name == "sqlite":
        bodies = [cast(body, LargeBinary) for body in bodies]
    columns = (PART.c.seq, PART.c.session_id, PART.c.message_id, PART.c.id, bodies[0].label("body"), bodies[1].label("message"))
    query: Select[Any] = select(*columns).join(MESSAGE, of_message, isouter=True)
    return connection.execute(query.where(PART.c.seq <= upto).order_by(PART.c.seq.desc()).limit(limit)).all()


def index_some(connection: Connection, limit: int, characters: int) -> int:
    """Puts texts into the index: at most `limit`, with at most `characters` together, or one that is longer. Returns how many."""
    unindexed = _SQLITE_UNINDEXED if connection.dialect.name == "sqlite" else _UNINDEXED
    query = select(PART_TEXT.c.part_seq, func.length(PART_TEXT.c.text).label("size")).where(unindexed)
    taken: list[int] = []
    for row in connection.execute(query.order_by(PART_TEXT.c.part_seq).limit(limit)).all():
        characters -= row.size
        if taken and characters < 0:
            break
        taken.append(row.part_seq)
    if taken:
        connection.execute(update(PART_TEXT).where(PART_TEXT.c.part_seq.in_(taken)).values(indexed=True))
    return len(taken)
