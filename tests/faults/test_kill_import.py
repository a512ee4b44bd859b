"""kill -9 while a server stores an imported document: all of it is there or nothing, and it can be sent again."""

import asyncio
import os
import random
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import orjson
from figures import Figure
from killable import PATIENCE, Client, Servers
from long_form import LONG
from sqlalchemy import Engine, func, select, text

from app.record import tables
from app.record.engine import make_engine

KILLS = 12 if LONG else 2
MESSAGES = 2_000
SESSION, CHILD = "ses_kill", "ses_killchild"
_WITH_SESSION = [table for table in tables.METADATA.sorted_tables if "session_id" in table.columns]
_WRITING = text(
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_xid IS NOT NULL"
)


def message(session_id: str, number: int) -> dict[str, Any]:
    here = {"sessionID": session_id, "messageID": f"msg_{number:05}"}
    parts = [{"id": f"prt_{number:05}{n}", **here, "type": "text", "text": f"Grüße {number}.{n} " + "x" * 200} for n in range(3)]
    model = {"providerID": "scripted", "modelID": "rules"}
    info = {"id": here["messageID"], "sessionID": session_id, "role": "user", "agent": "build", "model": model}
    return {"info": {**info, "time": {"created": number}}, "parts": parts}


def history(session_id: str, messages: int, **fields: str) -> dict[str, Any]:
    info = {"id": session_id, "title": "Kept", "version": "1", "projectID": "p", "directory": "/", **fields}
    stored = [message(session_id, number) for number in range(messages)]
    return {"info": {**info, "time": {"created": 1, "updated": 2}}, "messages": stored}


DOCUMENT = orjson.dumps({**history(SESSION, MESSAGES), "children": [history(CHILD, 10, parentID=SESSION)]})


def document(number: int) -> bytes:
    """One of many that differ in their ids."""
    return DOCUMENT.replace(SESSION.encode(), f"{SESSION}{number}x".encode())


async def send(http: httpx2.AsyncClient, number: int) -> httpx2.Response:
    return await http.post("/session/import", content=document(number), headers={"Content-Type": "application/json"})


def is_writing(engine: Engine, data: Path) -> bool:
    """Whether a transaction that writes is open."""
    if engine.dialect.name == "postgresql":
        with engine.connect() as connection:
            return bool(connection.execute(_WRITING).scalar_one())
    with closing(sqlite3.connect(data / "opensession.db", timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return True
        return False


async def kill_while_it_writes(client: Client, engine: Engine, data: Path, number: int, chance: random.Random) -> None:
    sent = asyncio.create_task(send(client.http, number))
    async with asyncio.timeout(PATIENCE):
        while not sent.done() and not await asyncio.to_thread(is_writing, engine, data):
            await asyncio.sleep(0.002)
    await asyncio.sleep(chance.random() * 0.1)
    os.kill(client.process.pid, signal.SIGKILL)
    await asyncio.gather(sent, return_exceptions=True)
    await client.ended()


def stored(engine: Engine, number: int) -> dict[str, int]:
    """The rows of a document's sessions, by table."""
    mine = f"{SESSION}{number}x"
    with engine.connect() as connection:
        count = select(func.count())
        found = {
            table.name: connection.scalar(count.select_from(table).where(table.c.session_id.startswith(mine)))
            for table in _WITH_SESSION
        }
        found["session"] = connection.scalar(count.where(tables.SESSION.c.id.startswith(mine)))
        announced = text("SELECT count(*) FROM event_journal WHERE payload LIKE :created")
        found["event_journal"] = connection.scalar(announced, {"created": f'%"session.created"%{mine}%'})
    return {name: number or 0 for name, number in found.items()}


async def test_a_killed_import_is_whole_or_nothing(database: dict[str, str], tmp_path: Path, figure: Figure) -> None:
    settings = {f"OPENSESSION_{name.upper()}": value for name, value in database.items()}
    servers, chance = Servers(tmp_path, **settings), random.Random(7)
    engine = make_engine(database.get("database_url", f"sqlite:///{servers.data / 'opensession.db'}"))
    for number in range(KILLS):
        async with servers.start() as client:
            await kill_while_it_writes(client, engine, servers.data, number, chance)
    async with servers.start() as client:
        left = [stored(engine, number) for number in range(KILLS)]
        answers = [await send(client.http, number) for number in range(KILLS)]
        for number in range(KILLS):  # what is exported is what was sent
            expected = orjson.loads(document(number))
            exported = await client.get(f"/session/{SESSION}{number}x/export?children=true")
            assert exported["messages"] == expected["messages"]
            assert [each["messages"] for each in exported["children"]] == [each["messages"] for each in expected["children"]]
    whole = stored(engine, 0)
    assert whole["session"] == whole["event_journal"] == 2
    assert (whole["message"], whole["part"]) == (MESSAGES + 10, 3 * (MESSAGES + 10))
    assert [stored(engine, number) for number in range(KILLS)] == [whole] * KILLS, "nothing twice"
    nothing = dict.fromkeys(whole, 0)
    assert [answer.status_code for answer in answers] == [200 if each == nothing else 409 for each in left]
    assert all(each in (nothing, whole) for each in left), left
    assert nothing in left, "one was killed before its commit"
    engine.dispose()
    figure(f"{KILLS} imports killed while they were stored ({engine.dialect.name}): {left.count(nothing)} left nothing, 0 a part")
