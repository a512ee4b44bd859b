"""The index of searches of a database in which texts were indexed some seconds after their commits."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from older_database import downgrade_to, upgrade_to
from postgres import PostgresServer
from sqlalchemy import Connection, text

from app.record.engine import Database
from app.record.migrate import upgrade
from app.record.text_search import TextFilter, find_texts, has_text_index, tidy_trigrams
from app.sessions.rows import encode

SAID = {"prt_1": "an old word", "prt_2": "a new word", "prt_3": "a word that no row has"}
SESSION = "INSERT INTO session (id, project_id, directory, title_folded, updated, body) VALUES (:id, 'p', '/', :folded, 1, :body)"
MESSAGE = (
    "INSERT INTO message (session_id, id, role, open, boundary, body) VALUES ('ses_1', 'msg_1', 'user', false, false, :body)"
)
PART = "INSERT INTO part (session_id, message_id, id, type, body) VALUES ('ses_1', 'msg_1', :id, 'text', :body)"
TEXT = "INSERT INTO part_text (part_seq, role, kind, time, text) SELECT seq, 'user', 'text', 1, :said FROM part WHERE id = :id"
FIRST = "(SELECT seq FROM part WHERE id = 'prt_1')"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    if request.param == "sqlite":
        database = Database(f"sqlite:///{tmp_path / 'opensession.db'}")
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        database = Database(postgres.new_database())
    yield database
    database.close()


def put_parts(connection: Connection, bodies: dict[str, str]) -> None:
    connection.execute(text(SESSION), {"id": "ses_1", "folded": "", "body": "{}"})
    connection.execute(text(MESSAGE), {"body": '{"time":{"created":7}}'})
    connection.execute(text(PART), [{"id": part, "body": body} for part, body in bodies.items()])


async def tidy(database: Database) -> None:
    if database.dialect == "postgresql":
        await tidy_trigrams(database)


async def found(database: Database, word: str) -> list[str]:
    return await database.read(lambda connection: [row.id for row in find_texts(connection, TextFilter((word,), 2_000))])


async def test_all_texts_are_found_and_those_of_then_can_go(database: Database) -> None:
    """One that is indexed, one that is to be, and a part from before there were any."""
    upgrade_to(database.engine, "0020")
    with database.engine.begin() as connection:
        put_parts(connection, {part: json.dumps({"type": "text", "text": said}) for part, said in SAID.items()})
        connection.execute(text(TEXT), [{"id": part, "said": SAID[part]} for part in ("prt_1", "prt_2")])
        connection.execute(text(f"UPDATE part_text SET indexed = true WHERE part_seq = {FIRST}"))
        connection.execute(text(f"UPDATE counter SET value = {FIRST} WHERE name = 'unsearched_parts'"))
    upgrade(database.engine)
    await tidy(database)
    assert await database.read(has_text_index)
    assert await found(database, "word") == ["prt_2", "prt_1"]
    assert await found(database, "new") == ["prt_2"]
    await database.write(lambda connection: connection.execute(text("DELETE FROM part WHERE id = 'prt_1'")))
    assert await found(database, "word") == ["prt_2"] and await found(database, "old") == []
    downgrade_to(database.engine, "0020")
    upgrade(database.engine)
    await tidy(database)
    assert await found(database, "word") == ["prt_2"]


async def test_the_parts_of_an_old_database_are_found(database: Database) -> None:
    """As they were stored before there were texts of them; one is damaged."""
    many = 1_100
    upgrade_to(database.engine, "0012")
    bodies = {f"prt_{number}": f'{{"type":"text","text":"w{number}x 吃饭"}}' for number in range(many)}
    bodies[f"prt_{many // 2}"] = '{"type":"text","te'
    with database.engine.begin() as connection:
        put_parts(connection, bodies)
    upgrade(database.engine)
    await tidy(database)
    for number in (0, many // 2 - 1, many // 2 + 1, many - 1):
        wanted = TextFilter((f"w{number}x",), 2)
        [row] = await database.read(lambda connection, wanted=wanted: list(find_texts(connection, wanted)))
        assert (row.id, row.time, row.role) == (f"prt_{number}", 7, "user")
    assert await found(database, f"w{many // 2}x") == []
    assert len(await found(database, encode("吃饭"))) == many - 1


def test_titles_of_an_old_database_are_found_without_their_accents(database: Database) -> None:
    engine = database.engine
    upgrade_to(engine, "0022")
    with engine.begin() as connection:
        for session, title in {"ses_1": "Café NAÏVE", "ses_2": "Plain"}.items():
            body = json.dumps({"id": session, "title": title})
            connection.execute(text(SESSION), {"id": session, "folded": title.casefold(), "body": body})
        connection.execute(text(SESSION), {"id": "ses_3", "folded": "damaged", "body": "{"})
    upgrade(engine)
    with engine.connect() as connection:
        found = dict(connection.execute(text("SELECT id, title_folded FROM session")).tuples().all())
    assert found == {"ses_1": "cafe naive", "ses_2": "plain", "ses_3": "damaged"}
