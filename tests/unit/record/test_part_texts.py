"""The index of searches: that it is used, that it holds what the texts say, and what becomes of searches without it."""

import re
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from postgres import migrated
from sqlalchemy import Connection, event, text
from storage_parts import Storage, message_row, open_storage, open_storage_at, part_row, session_row

from app.record import maintenance, text_search
from app.record.engine import DatabaseUnusable, make_engine
from app.record.migrate import upgrade
from app.record.statements import statements
from app.record.text_search import FTS, TRIGRAMS, TextFilter, find_texts, has_text_index, tidy_trigrams
from app.sessions.rows import encode

MANY = 4_000
EVERY = {"alike": 1, "seventh": 7, "hundred": 100}
"""Words, and in every which text they are."""


@pytest.fixture(params=["sqlite", "postgresql"])
async def storage(request: pytest.FixtureRequest, tmp_path: Path, migrated_database: Path) -> AsyncIterator[Storage]:
    if request.param == "sqlite":
        opened = open_storage(shutil.copy(migrated_database, tmp_path / "opensession.db"))
    else:
        opened = open_storage_at(migrated(request.getfixturevalue("postgres")))
    yield opened
    await opened.writer.barrier()
    opened.database.close()


async def put(storage: Storage, texts: list[str]) -> None:
    """Parts with these texts, in sessions of ten."""
    ids = [(f"ses_{number // 10}", f"msg_{number}", f"prt_{number}") for number in range(len(texts))]
    await storage.put(
        session=[session_row(f"ses_{number}", directory=f"/d{number}") for number in range(len(texts) // 10 + 1)],
        message=[message_row(message, session) for session, message, _ in ids],
        part=[part_row(part, message, session) for session, message, part in ids],
        part_text=[
            {"of_session": session, "of_message": message, "of_part": part, "kind": "text", "time": place, "text": encode(said)}
            for place, ((session, message, part), said) in enumerate(zip(ids, texts, strict=True))
        ],
    )


async def found(storage: Storage, *words: str, limit: int = 20, **wanted: Any) -> list[str]:
    asked = TextFilter(tuple(map(encode, words)), limit, **wanted)
    return await storage.database.read(lambda connection: [row.id for row in find_texts(connection, asked)])


async def plan(storage: Storage, *words: str, **wanted: Any) -> str:
    """How the database goes about the statements of a search."""
    asked, statements = TextFilter(tuple(map(encode, words)), 20, **wanted), list[tuple[str, Any]]()

    def explain(connection: Connection) -> str:
        @event.listens_for(connection, "before_cursor_execute")
        def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
            statements.append((statement, parameters))

        find_texts(connection, asked)
        event.remove(connection, "before_cursor_execute", note)
        how = "EXPLAIN QUERY PLAN " if connection.dialect.name == "sqlite" else "EXPLAIN "
        explained = [connection.exec_driver_sql(how + said, values) for said, values in statements if "part_text" in said]
        return "\n".join(str(row) for rows in explained for row in rows)

    return await storage.database.read(explain)


async def tidy(storage: Storage) -> None:
    if storage.database.dialect == "postgresql":
        await tidy_trigrams(storage.database)


@pytest.mark.parametrize("offset", [7, 2**48 - 1])
async def test_a_copied_session_is_searched_too(storage: Storage, offset: int) -> None:
    await put(storage, [f"text number{number}" for number in range(5)])
    await storage.put(session=[session_row("ses_copy")])
    copy = {"source": "ses_0", "target": "ses_copy", "before": 1_000, "letters": "x" * 14}

    def fork(connection: Connection) -> None:
        for statement in statements(connection.dialect.name).copy_history:
            connection.execute(statement, {**copy, "message_offset": offset, "part_offset": offset})

    await storage.database.write(fork)
    for number in range(5):
        assert len(await found(storage, f"number{number}")) == 2


async def test_a_search_reads_no_more_than_it_must(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    await put(storage, [f"text number{number} of many that are rather alike {number * 7919}" for number in range(MANY)])
    await tidy(storage)  # as it is some seconds later
    await storage.database.write(lambda connection: connection.execute(text("ANALYZE")))
    for word in ("number77", "qwertyuiop", "吃饭"):
        taken = await plan(storage, word)
        assert "VIRTUAL TABLE INDEX" in taken or TRIGRAMS in taken, "it takes the index"
        assert not re.search(r"SCAN part(_text)?(?!_text_fts)\b|Seq Scan", taken)
    for scope in ({"session_id": "ses_7"}, {"directory": "/d7"}):
        assert await found(storage, "alike", **scope) == [f"prt_{number}" for number in range(79, 69, -1)]
        taken = await plan(storage, "alike", **scope)
        assert any(index in taken for index in ("part_by_message", "part_session_id_message_id_id", "sqlite_autoindex_part"))
        assert FTS not in taken, "a small scope is read through its own parts"
    assert "session_by_directory" in taken
    await storage.database.write(lambda connection: connection.execute(text("UPDATE session SET directory = '/all'")))
    monkeypatch.setitem(text_search.SMALL_SCOPE, storage.database.dialect, MANY - 1)
    taken = await plan(storage, "number12", directory="/all")
    assert FTS in taken or "CTE found" in taken, "a large one is searched in the index"
    assert await found(storage, "alike", limit=3, directory="/all") == ["prt_3999", "prt_3998", "prt_3997"]
    assert await found(storage, "number12", directory="/all", before=100) == ["prt_12"]


async def test_what_no_row_says_is_not_found(storage: Storage) -> None:
    await put(storage, [f"text number{number} is alike" for number in range(MANY)])
    await storage.database.write(lambda connection: connection.execute(text("UPDATE part_text SET role = 'user', time = 1000")))
    await tidy(storage)
    await storage.database.write(lambda connection: connection.execute(text("ANALYZE")))
    for nowhere in ({"kind": "reasoning"}, {"role": "assistant"}, {"until": 999.5}, {"since": 1000.5}):
        assert await found(storage, "alike", **nowhere) == []
        taken = await plan(storage, "alike", **nowhere)
        assert "part_text_facts" in taken or storage.database.dialect == "postgresql", "it takes any other that is as short"
    assert len(await found(storage, "alike", role="user")) == 20


async def test_all_pages_hold_all_that_is_wanted(storage: Storage) -> None:
    """Over the bounds between what is read and what the index finds."""
    await put(storage, [" ".join(each for each, n in EVERY.items() if number % n == 0) for number in range(MANY)])
    for wanted, expected in (
        ({}, range(MANY)),
        ({"since": 500, "until": 2_500.5}, range(500, 2_501)),
        ({"until": 1e300, "since": -1e300}, range(MANY)),
        ({"kind": "text", "role": "user", "until": MANY / 2}, range(MANY // 2 + 1)),
    ):
        for word, every in EVERY.items():
            pages: list[str] = []
            before = None  # the number of a part: into an empty database they are put from 1 on
            while page := await found(storage, word, limit=900, **wanted, before=before):
                pages += page
                before = int(page[-1].removeprefix("prt_")) + 1
            assert pages == [f"prt_{number}" for number in reversed(expected) if number % every == 0]


def drop_text_index(connection: Connection) -> None:
    if connection.dialect.name != "sqlite":
        connection.exec_driver_sql(f"DROP INDEX {TRIGRAMS}")
        return
    for trigger in ("part_text_put", "part_text_change", "part_text_delete"):
        connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
    connection.exec_driver_sql(f"DROP TABLE {FTS}")


@pytest.mark.parametrize("what", ["with the index", "without", "made again"])
async def test_what_is_found_does_not_depend_on_the_index(storage: Storage, what: str) -> None:
    if what != "with the index":
        await storage.database.write(drop_text_index)
    await put(storage, ["crème brûlée", "我们今天去吃饭了", "go home", "100 % of it", "Straße"])
    if what == "made again":
        [finding] = [each for each in maintenance.check(storage.database.engine) if "have no index" in each.text]
        assert finding.level == "note" and finding.act is not None
        finding.act()
        assert [each for each in maintenance.check(storage.database.engine) if "have no index" in each.text] == []
    assert await storage.database.read(has_text_index) == (what != "without")
    wanted = {"creme": "prt_0", "吃饭": "prt_1", "go": "prt_2", "%": "prt_3", "of 100": "prt_3", "strasse": "prt_4"}
    assert {words: await found(storage, *words.split()) for words in wanted} == {words: [part] for words, part in wanted.items()}
    assert await found(storage, "creme", "home") == []


async def test_a_text_that_is_stored_again_is_found_as_it_is_now(storage: Storage) -> None:
    for _ in range(2):
        await put(storage, ["as it was"])
        assert await found(storage, "was") == ["prt_0"]
    await put(storage, ["as it is"])
    assert await found(storage, "was") == [] and await found(storage, "it is") == ["prt_0"]


def test_an_index_that_this_sqlite_cannot_open_is_named(tmp_path: Path, migrated_database: Path) -> None:
    shutil.copy(migrated_database, tmp_path / "opensession.db")
    with closing(sqlite3.connect(tmp_path / "opensession.db")) as connection, connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(f"UPDATE sqlite_master SET sql = replace(sql, 'fts5', 'fts_of_elsewhere') WHERE name = '{FTS}'")
    engine = make_engine(f"sqlite:///{tmp_path / 'opensession.db'}")
    try:
        with pytest.raises(DatabaseUnusable, match="FTS5"):
            upgrade(engine)
        findings = [each for each in maintenance.check(engine) if "FTS5" in each.text]
        assert [(each.level, each.act) for each in findings] == [("fault", None)]
    finally:
        engine.dispose()
