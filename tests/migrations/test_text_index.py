"""The index of searches of a database in which texts were indexed some seconds after their commits."""

from pathlib import Path

import pytest
from older_database import downgrade_to, upgrade_to
from postgres import PostgresServer
from sqlalchemy import Connection, text

from app.session.search_index import SearchIndex
from app.storage.engine import Database
from app.storage.migrate import upgrade
from app.storage.part_texts import TextFilter, find_texts
from app.storage.text_index import has_text_index

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
    assert "prt_1" in await found(database, "word"), "what was in the index is found at once"
    await SearchIndex(database).catch_up()
    assert await database.read(has_text_index)
    assert await found(database, "word") == ["prt_2", "prt_1"]
    assert await found(database, "new") == ["prt_2"]
    await database.write(lambda connection: connection.execute(text("DELETE FROM part WHERE id = 'prt_1'")))
    assert await found(database, "word") == ["prt_2"] and await found(database, "old") == []
    downgrade_to(database.engine, "0020")
    upgrade(database.engine)
    await SearchIndex(database).catch_up()
    assert await found(database, "word") == ["prt_2"]
    database.close()
