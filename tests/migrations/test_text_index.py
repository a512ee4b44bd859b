"""The index of searches of a database in which texts were indexed some seconds after their commits."""

import json
from functools import partial
from pathlib import Path

import pytest
from older_database import downgrade_to, upgrade_to
from postgres import PostgresServer
from sqlalchemy import Connection, text

from app.record.engine import Database, make_engine
from app.record.migrate import upgrade
from app.record.text_search import TextFilter, find_texts, has_text_index, tidy_trigrams
from app.sessions.rows import encode

SAID = {"prt_1": "an old word", "prt_2": "a new word", "prt_3": "a word that no row has"}


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'opensession.db'}"
    postgres: PostgresServer = request.getfixturevalue("postgres")
    return postgres.new_database()


def put_texts(connection: Connection) -> None:
    """One that is indexed, one that is to be, and a part from before there were any."""
    session = (
        "INSERT INTO session (id, project_id, directory, title_folded, updated, body) VALUES ('ses_1', 'p', '/', '', 1, '{}')"
    )
    connection.execute(text(session))
    message = (
        "INSERT INTO message (session_id, id, role, open, boundary, body) VALUES ('ses_1', 'msg_1', 'user', false, false, '{}')"
    )
    connection.execute(text(message))
    for part, said in SAID.items():
        row = "INSERT INTO part (session_id, message_id, id, type, body) VALUES ('ses_1', 'msg_1', :part, 'text', :body)"
        connection.execute(text(row), {"part": part, "body": f'{{"type":"text","text":"{said}"}}'})
    texts = (
        "INSERT INTO part_text (part_seq, role, kind, time, text) SELECT seq, 'user', 'text', 1, :said FROM part WHERE id = :part"
    )
    for part in ("prt_1", "prt_2"):
        connection.execute(text(texts), {"part": part, "said": SAID[part]})
    connection.execute(text("UPDATE part_text SET indexed = true WHERE part_seq = (SELECT seq FROM part WHERE id = 'prt_1')"))
    connection.execute(
        text("UPDATE counter SET value = (SELECT seq FROM part WHERE id = 'prt_1') WHERE name = 'unsearched_parts'")
    )


async def found(database: Database, word: str) -> list[str]:
    rows = await database.read(lambda connection: find_texts(connection, TextFilter((word,), 10)))
    return [row.id for row in rows]


async def test_all_texts_are_found_and_those_of_then_can_go(url: str) -> None:
    database = Database(url)
    upgrade_to(database.engine, "0020")
    with database.engine.begin() as connection:
        put_texts(connection)
    upgrade(database.engine)
    await tidy_trigrams(database)
    assert await database.read(has_text_index)
    assert await found(database, "word") == ["prt_2", "prt_1"]
    assert await found(database, "new") == ["prt_2"]
    await database.write(lambda connection: connection.execute(text("DELETE FROM part WHERE id = 'prt_1'")))
    assert await found(database, "word") == ["prt_2"] and await found(database, "old") == []
    downgrade_to(database.engine, "0020")
    upgrade(database.engine)
    await tidy_trigrams(database)
    assert await found(database, "word") == ["prt_2"]
    database.close()


async def test_the_parts_of_an_old_database_are_found(url: str) -> None:
    """As they were stored before there were texts of them; one is damaged."""
    database, many = Database(url), 1_100
    upgrade_to(database.engine, "0012")
    bodies = [f'{{"type":"text","text":"w{number}x 吃饭"}}' for number in range(many)]
    bodies[many // 2] = '{"type":"text","te'
    with database.engine.begin() as connection:
        columns = "id, project_id, directory, title_folded, updated, body"
        connection.execute(text(f"INSERT INTO session ({columns}) VALUES ('ses_1', 'p', '/', '', 1, '{{}}')"))
        columns, body = "session_id, id, role, open, boundary, body", '{"time":{"created":7}}'
        message = f"INSERT INTO message ({columns}) VALUES ('ses_1', 'msg_1', 'user', false, false, :body)"
        connection.execute(text(message), {"body": body})
        part = "INSERT INTO part (session_id, message_id, id, type, body) VALUES ('ses_1', 'msg_1', :id, 'text', :body)"
        connection.execute(text(part), [{"id": f"prt_{number}", "body": body} for number, body in enumerate(bodies)])
    upgrade(database.engine)
    await tidy_trigrams(database)
    for number in (0, many // 2 - 1, many // 2 + 1, many - 1):
        [row] = await database.read(partial(find_texts, wanted=TextFilter((f"w{number}x",), 2)))
        assert (row.id, row.time, row.role) == (f"prt_{number}", 7, "user")
    assert await found(database, f"w{many // 2}x") == []
    assert len(await database.read(partial(find_texts, wanted=TextFilter((encode("吃饭"),), many)))) == many - 1
    database.close()


def test_titles_of_an_old_database_are_found_without_their_accents(url: str) -> None:
    titles = {"ses_1": "Café NAÏVE", "ses_2": "Plain"}
    engine = make_engine(url)
    upgrade_to(engine, "0022")
    with engine.begin() as connection:
        columns = "id, project_id, directory, title_folded, updated, body"
        row = f"INSERT INTO session ({columns}) VALUES (:id, 'p', '/', :folded, 1, :body)"
        for session, title in titles.items():
            body = json.dumps({"id": session, "title": title})
            connection.execute(text(row), {"id": session, "folded": title.casefold(), "body": body})
        connection.execute(text(row), {"id": "ses_3", "folded": "damaged", "body": "{"})
    upgrade(engine)
    with engine.connect() as connection:
        found = dict(connection.execute(text("SELECT id, title_folded FROM session")).tuples().all())
    assert found == {"ses_1": "cafe naive", "ses_2": "plain", "ses_3": "damaged"}
    engine.dispose()
