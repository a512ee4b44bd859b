"""kill -9 while a server goes through the parts of an old database: the next one goes on from there."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from older_database import upgrade_to
from postgres import PostgresServer
from running_server import ROOT
from sqlalchemy import Engine, text

from app.session.searched_text import encode
from app.storage.engine import make_engine
from app.storage.migrate import upgrade
from app.storage.part_texts import TextFilter, find_texts

PARTS = 3_000
SECONDS = 240
WORK = """
import asyncio, sys
from app.session.search_index import SearchIndex
from app.storage.engine import Database
from app.storage.statements import Statements
database = Database(sys.argv[1])
asyncio.run(SearchIndex(database).catch_up(print))
database.close()
"""


def fill(engine: Engine) -> None:
    """As a server of the revision before stored it; one part is damaged."""
    upgrade_to(engine, "0012")
    bodies = [f'{{"type":"text","text":"w{number}x 吃饭"}}' for number in range(PARTS)]
    bodies[PARTS // 2] = '{"type":"text","te'
    with engine.begin() as connection:
        session = (
            "INSERT INTO session (id, project_id, directory, title_folded, updated, body) VALUES ('ses_1', 'p', '/', '', 1, '{}')"
        )
        connection.execute(text(session))
        columns, body = "session_id, id, role, open, boundary, body", '{"time":{"created":7}}'
        message = f"INSERT INTO message ({columns}) VALUES ('ses_1', 'msg_1', 'user', false, false, :body)"
        connection.execute(text(message), {"body": body})
        part = "INSERT INTO part (session_id, message_id, id, type, body) VALUES ('ses_1', 'msg_1', :id, 'text', :body)"
        connection.execute(text(part), [{"id": f"prt_{number}", "body": body} for number, body in enumerate(bodies)])
    upgrade(engine)


def count(engine: Engine) -> int:
    """Texts that are there."""
    with engine.begin() as connection:
        return int(connection.execute(text("SELECT count(*) FROM part_text")).scalar_one())


def run(url: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WORK, url], cwd=ROOT)


def kill_after_progress(engine: Engine, url: str, by: int) -> None:
    before, deadline = count(engine), time.monotonic() + SECONDS
    process = run(url)
    while process.poll() is None and count(engine) < before + by:
        assert time.monotonic() < deadline, "it stands still"
        time.sleep(0.01)
    process.kill()
    process.wait()


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_what_is_killed_goes_on_and_nothing_is_lost_or_doubled(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path / 'opensession.db'}"
    else:
        postgres: PostgresServer = request.getfixturevalue("postgres")
        url = postgres.new_database()
    engine, chance = make_engine(url), random.Random(4)
    fill(engine)
    for _ in range(5):
        kill_after_progress(engine, url, chance.randrange(1, PARTS // 6))
    assert 0 < count(engine) < PARTS - 1, "it was killed within its work"
    assert run(url).wait(SECONDS) == 0
    assert count(engine) == PARTS - 1
    with engine.begin() as connection:
        for number in (0, 1, PARTS // 2 - 1, PARTS // 2 + 1, PARTS - 1):
            row = next(iter(find_texts(connection, TextFilter((f"w{number}x",), 1))))
            assert (row.id, row.time, row.role) == (f"prt_{number}", 7, "user")
        assert len(find_texts(connection, TextFilter((encode("吃饭"),), PARTS))) == PARTS - 1
        assert find_texts(connection, TextFilter((f"w{PARTS // 2}x",), 1)) == []
    engine.dispose()
