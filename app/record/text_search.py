"""Searches in the texts of parts: how a text is compared, the index of trigrams, and the queries.

The index is in SQLite an FTS5 table that triggers keep, in PostgreSQL an index of pg_trgm. FTS5 holds no text, only which
trigrams occur in which texts: an eighth of the work of an index with positions, and the text itself is there to be compared.
PostgreSQL puts new texts on a list, which searches read too, and later into the index, many at once: within their commits that
would hold other servers up. Without FTS5 or pg_trgm there is no index, and searches read the texts.
"""

import asyncio
import logging
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
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
from sqlalchemy.exc import DBAPIError, OperationalError

from app.record.engine import Database
from app.record.tables import PART, PART_TEXT, SESSION

_ACCENTS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f"
_COMPOSING = "\u1160-\u11ff\u3099\u309a"
"""Characters that form one character with the one before, and are no accents: the vowels of Hangul, the voicing of kana."""

_ACCENT = re.compile(f"[{_ACCENTS}]+")
JOINED = f"[{_ACCENTS}{_COMPOSING}]"
"""Characters that belong to the one before."""


def fold(text: str) -> str:
    """Folds case and accents. Removes NUL, which databases cannot hold."""
    text = text.replace("\0", "")
    if text.isascii():
        return text.lower()
    plain = _ACCENT.sub("", unicodedata.normalize("NFKD", text)).casefold()
    return unicodedata.normalize("NFC", plain)


LACKS_FTS5 = (
    "the SQLite of this Python has no FTS5, which the database's search index was made with: no message can be stored. "
    "Run the server with a Python whose SQLite has FTS5."
)

log = logging.getLogger(__name__)

FTS = "part_text_fts"
TRIGRAMS = "part_text_trigrams"

_FACETED = "char(2) || substr({row}.role, 1, 1) || substr({row}.kind, 1, 1) || char(10) || {row}.text"
"""The text after a trigram that says its role and kind."""

_PUT = f"INSERT INTO {FTS}(rowid, text) VALUES (new.part_seq, {_FACETED.format(row='new')});"
_REMOVE = f"INSERT INTO {FTS}({FTS}, rowid, text) VALUES ('delete', old.part_seq, {_FACETED.format(row='old')});"
_TRIGGERS = {
    "part_text_put": f"AFTER INSERT ON part_text BEGIN {_PUT} END",
    "part_text_change": f"AFTER UPDATE OF role, kind, text ON part_text BEGIN {_REMOVE} {_PUT} END",
    "part_text_delete": f"AFTER DELETE ON part_text BEGIN {_REMOVE} END",
}
_SQLITE = (
    f"CREATE VIRTUAL TABLE {FTS} USING fts5(text, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1')",
    f"INSERT INTO {FTS}(rowid, text) SELECT part_seq, {_FACETED.format(row='part_text')} FROM part_text",
    *(f"CREATE TRIGGER {name} {does}" for name, does in _TRIGGERS.items()),
)
_POSTGRES_INDEX = f"{TRIGRAMS} ON part_text USING gin (text gin_trgm_ops)"
_POSTGRES = ("CREATE EXTENSION IF NOT EXISTS pg_trgm", f"CREATE INDEX {_POSTGRES_INDEX}")

_HAS_TRIGRAMS = f"SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('{TRIGRAMS}') AND indisvalid"
_HAS_EXTENSION = "SELECT count(*) FROM pg_extension WHERE extname = 'pg_trgm'"
_HAS_FTS = f"SELECT count(*) FROM sqlite_master WHERE name = '{FTS}'"


def create_text_index(connection: Connection) -> None:
    """Makes the index of the stored texts, if the database can have one."""
    try:
        with connection.begin_nested():
            for statement in _SQLITE if _is_sqlite(connection) else _POSTGRES:
                connection.exec_driver_sql(statement)
    except DBAPIError as error:
        log.warning("searches in messages have no index: %s", error.orig)


def has_text_index(connection: Connection) -> bool:
    return _counts(connection, _HAS_FTS if _is_sqlite(connection) else _HAS_TRIGRAMS)


def lacks_fts5(connection: Connection) -> bool:
    """Whether another SQLite made the index and this one cannot open it: then no part with a text can be stored."""
    if not _is_sqlite(connection) or not _counts(connection, _HAS_FTS):
        return False
    try:
        connection.exec_driver_sql(f"SELECT rowid FROM {FTS} LIMIT 0")
    except OperationalError as error:
        if "no such module" in str(error.orig):
            return True
        raise
    return False


async def tidy_trigrams(database: Database) -> None:
    """For PostgreSQL, apart from the transactions that writers wait for: makes the index of a large database that was migrated,
    or puts the newest texts into it. Runs on one server at a time."""
    async with database.locks.lock("search index"):
        connection = await asyncio.to_thread(database.engine.execution_options(isolation_level="AUTOCOMMIT").connect)
        driver: Any = connection.connection.driver_connection
        try:
            await asyncio.to_thread(_tidy, connection)
        except asyncio.CancelledError:
            await asyncio.to_thread(driver.cancel)  # a server that stops does not wait for it
            raise


def _tidy(connection: Connection) -> None:
    with connection:
        if not _counts(connection, _HAS_EXTENSION):
            return
        if _counts(connection, _HAS_TRIGRAMS):
            connection.exec_driver_sql(f"SELECT gin_clean_pending_list('{TRIGRAMS}')")
            return
        connection.exec_driver_sql(f"DROP INDEX IF EXISTS {TRIGRAMS}")  # one that could not be finished
        connection.exec_driver_sql(f"CREATE INDEX CONCURRENTLY {_POSTGRES_INDEX}")


def _counts(connection: Connection, query: str) -> bool:
    return bool(connection.exec_driver_sql(query).scalar_one())


def _is_sqlite(connection: Connection) -> bool:
    return connection.dialect.name == "sqlite"


ROLES = ("user", "assistant")
KINDS = ("text", "reasoning", "tool")

SMALL_SCOPE = {"sqlite": 10_000, "postgresql": 2_000}
"""Up to so many parts of a session, directory or user are read through, instead of all that the index finds, also of others.
PostgreSQL takes ten times as long to read a text."""
RECENT = 1_000
"""How many of the newest texts PostgreSQL reads before it uses its index, which has no order. Words that occur more often than
once in fifty texts are found among these; for the others the index finds few."""
MAX_TRIGRAMS = 64
"""The most trigrams in a query to FTS5; the text is compared anyway."""
LARGEST = 2**63 - 1
"""The largest time that a column holds."""


@dataclass(frozen=True, slots=True)
class TextFilter:
    """`words` as the index has them. `before`: only older texts than this sequence. `owner` None: of all owners. `since`,
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


def find_texts(connection: Connection, wanted: TextFilter) -> Iterable[Row[Any]]:
    """The parts in which all words occur, newest first, with `role` and `time`, and the body of their `session`. To be read one
    by one, while the connection is there: a hundred of the largest would take gigabytes."""
    return connection.execute(_FOUND.where(PART_TEXT.c.part_seq.in_(_seqs(connection, wanted))))


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
    """Follows the index, newest first, to as many texts as needed."""
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
    """The inner limit keeps PostgreSQL from using its index."""
    newest = _newest(wanted).add_columns(PART_TEXT.c.text).limit(RECENT).subquery()
    found = select(newest.c.part_seq).where(*_contained(connection, newest.c.text, wanted.words))
    return found.order_by(newest.c.part_seq.desc()).limit(wanted.limit)


def _by_trigrams(wanted: TextFilter) -> Select[Any]:
    """Without the limit, for which PostgreSQL would rather read texts than its index."""
    contained = [PART_TEXT.c.text.contains(word, autoescape=True) for word in wanted.words]
    found = select(PART_TEXT.c.part_seq).where(*contained, *_plain(wanted), *_of_scope(wanted))
    all_found = found.cte("found").prefix_with("MATERIALIZED")
    return select(all_found.c.part_seq).order_by(all_found.c.part_seq.desc()).limit(wanted.limit)


def _newest(wanted: TextFilter) -> Select[Any]:
    """All texts in the scope whose rows fit the filter."""
    texts = select(PART_TEXT.c.part_seq).where(*_plain(wanted), *_of_scope(wanted))
    return texts.order_by(PART_TEXT.c.part_seq.desc())


def _contained(connection: Connection, text: ColumnElement[str], words: Sequence[str]) -> list[ColumnElement[bool]]:
    """Compares the texts, without an index."""
    place = func.instr if connection.dialect.name == "sqlite" else func.strpos
    return [place(text, word) > 0 for word in words]


def _match(wanted: TextFilter) -> str | None:
    """The query to FTS5; None for words that are too short for it."""
    trigrams = dict.fromkeys(word[at : at + 3] for word in wanted.words for at in range(len(word) - 2))
    if not trigrams:
        return None
    terms = [_quoted(trigram) for trigram in list(trigrams)[:MAX_TRIGRAMS]]
    if wanted.role or wanted.kind:
        roles, kinds = [wanted.role] if wanted.role else ROLES, [wanted.kind] if wanted.kind else KINDS
        facets = [f"\2{role[0]}{kind[0]}" for role in roles for kind in kinds]
        terms.append(f"({' OR '.join(map(_quoted, facets))})")
    return " AND ".join(terms)


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _plain(wanted: TextFilter) -> list[ColumnElement[bool]]:
    """Conditions on the text's own row, which the index `part_text_facts` has."""
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
    """Restricts to a session, a directory or a user."""
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
    return literal(max(-LARGEST, min(rounded(time or 0), LARGEST)), BigInteger)
