"""Looking for words in the texts of parts, in SQLite and in PostgreSQL."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    column,
    exists,
    func,
    literal,
    literal_column,
    select,
    table,
)

from app.storage.tables import PART, PART_TEXT, SESSION
from app.storage.text_index import FTS, facets, has_text_index

ROLES = ("user", "assistant")
KINDS = ("text", "reasoning", "tool")

SMALL_SCOPE = {"sqlite": 10_000, "postgresql": 2_000}
"""Parts of a session, directory or user that are read through, rather than all that the index finds of others. PostgreSQL takes
ten times as long to read a text."""
RECENT = 1_000
"""How many of the newest texts PostgreSQL reads before it takes its index, which knows no order: what occurs more often than once
in fifty texts is found among them, and of what is left the index finds few."""
MAX_TRIGRAMS = 64
"""That FTS5 is asked for; the text is compared anyway."""
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
    return connection.execute(_FOUND.where(PART_TEXT.c.part_seq.in_(_seqs(connection, wanted)))).all()


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


def _seqs(connection: Connection, wanted: TextFilter) -> Sequence[int]:
    if _has_small_scope(connection, wanted):
        return connection.execute(_by_reading(connection, wanted)).scalars().all()
    if connection.dialect.name == "sqlite":
        match = _match(wanted) if has_text_index(connection) else None
        query = _by_fts(connection, wanted, match) if match else _by_reading(connection, wanted)
        return connection.execute(query).scalars().all()
    newest = connection.execute(_among_newest(connection, wanted)).scalars().all()
    return newest if len(newest) == wanted.limit else connection.execute(_by_trigrams(wanted)).scalars().all()


def _has_small_scope(connection: Connection, wanted: TextFilter) -> bool:
    if not (scope := _scope(wanted)):
        return False
    most = SMALL_SCOPE[connection.dialect.name]
    some = select(PART.c.seq).where(*scope).limit(most + 1).subquery()
    return connection.execute(select(func.count()).select_from(some)).scalar_one() <= most


def _by_reading(connection: Connection, wanted: TextFilter) -> Select[Any]:
    return _newest(wanted).where(*_contained(connection, PART_TEXT.c.text, wanted.words)).limit(wanted.limit)


def _by_fts(connection: Connection, wanted: TextFilter, match: str) -> Select[Any]:
    """From the index, newest first, to the texts: as many as it takes."""
    row, plain = _FTS.c.rowid, _plain(wanted)
    contained = _contained(connection, PART_TEXT.c.text, wanted.words)
    query = select(row).where(_FTS.c[FTS].op("MATCH")(match), exists().where(PART_TEXT.c.part_seq == row, *plain, *contained))
    if plain:
        newest = select(PART_TEXT.c.part_seq).where(*plain).order_by(PART_TEXT.c.part_seq.desc()).limit(1)
        query = query.where(row <= newest.scalar_subquery())
    if scope := _scope(wanted):
        query = query.where(exists().where(PART.c.seq == row, *scope))
    return query.order_by(row.desc()).limit(wanted.limit)


def _among_newest(connection: Connection, wanted: TextFilter) -> Select[Any]:
    """The limit within keeps PostgreSQL from taking its index."""
    newest = _newest(wanted).add_columns(PART_TEXT.c.text).limit(RECENT).subquery()
    found = select(newest.c.part_seq).where(*_contained(connection, newest.c.text, wanted.words))
    return found.order_by(newest.c.part_seq.desc()).limit(wanted.limit)


def _by_trigrams(wanted: TextFilter) -> Select[Any]:
    """Apart from the limit, for which PostgreSQL would rather read texts than its index."""
    contained = [PART_TEXT.c.text.contains(word, autoescape=True) for word in wanted.words]
    found = select(PART_TEXT.c.part_seq).where(*contained, *_plain(wanted), *_of_scope(wanted))
    all_found = found.cte("found").prefix_with("MATERIALIZED")
    return select(all_found.c.part_seq).order_by(all_found.c.part_seq.desc()).limit(wanted.limit)


def _newest(wanted: TextFilter) -> Select[Any]:
    """All in the scope of which their rows say what is wanted."""
    texts = select(PART_TEXT.c.part_seq).where(*_plain(wanted), *_of_scope(wanted))
    return texts.order_by(PART_TEXT.c.part_seq.desc())


def _contained(connection: Connection, text: ColumnElement[str], words: Sequence[str]) -> list[ColumnElement[bool]]:
    """As no index answers it."""
    place = func.instr if connection.dialect.name == "sqlite" else func.strpos
    return [place(text, word) > 0 for word in words]


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


def _of_scope(wanted: TextFilter) -> list[ColumnElement[bool]]:
    scope = _scope(wanted)
    return [PART_TEXT.c.part_seq.in_(select(PART.c.seq).where(*scope))] if scope else []


def _whole(rounded: Callable[[float], int], time: float | None) -> ColumnElement[int]:
    return literal(max(-_LARGEST, min(rounded(time or 0), _LARGEST)), BigInteger)
