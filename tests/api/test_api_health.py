"""The health check: when a server says that it cannot serve, and which servers of its database it lists."""

import asyncio
import operator
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from postgres import PostgresServer, migrated
from refused_commits import refused_commits
from running_app import RunningApp, running_app
from turns import bash, until

from app import __version__
from app.record.repositories import work_rows
from app.sessions import replicas
from app.sessions.lease import DEAD_AFTER_MS


async def listed(app: RunningApp) -> list[dict[str, Any]]:
    return (await app.get("/global/health?replicas=1"))["replicas"]


async def test_a_server_whose_database_accepts_no_writes_says_why(app: RunningApp, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused_commits() as commits:
        commits.refuses = True
        for _ in range(100):
            shown = await app.get("/global/health")
            assert shown == {"healthy": True, "version": __version__}, "while the heartbeat is new no check writes"
        # From here on none is new enough, and a failure is not remembered: every check tries a write.
        for name in ("FRESH_SECONDS", "TRY_AGAIN_SECONDS"):
            monkeypatch.setattr(replicas, name, 0.0)
        response = await app.client.get("/global/health")
        assert response.status_code == 503 and response.headers["retry-after"] == "5"
        reason = "The database accepts no writes: database or disk is full"
        assert response.json() == {"healthy": False, "version": __version__, "reason": reason}
    assert (await app.get("/global/health"))["healthy"]
    with closing(sqlite3.connect(app.data_dir / "opensession.db", isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        asked = time.monotonic()
        answers = await asyncio.gather(*(app.client.get("/global/health") for _ in range(5)))
        assert time.monotonic() - asked < 5 * replicas.WRITE_SECONDS, "one that hangs is not waited for, one after the other"
        holder.execute("ROLLBACK")
    assert {answer.status_code for answer in answers} == {503}
    assert "has stored no heartbeat of this server for" in answers[0].json()["reason"]
    assert (await app.get("/global/health"))["healthy"]


async def test_a_server_lists_itself(app: RunningApp) -> None:
    app.provider.add([bash("sleep 60")])
    session = (await app.create_session())["id"]
    await app.prompt_async(session, "Go")
    while not (await listed(app))[0]["runningSessions"]:
        await asyncio.sleep(0.01)
    (own,) = await listed(app)
    assert own["alive"] and own["version"] == __version__ and own["address"].endswith(":4096")
    assert own["runningSessions"] == 1 and 0 <= own["heartbeatAge"] < 60_000
    assert abs(own["started"] / 1000 - time.time()) < 60
    await app.post(f"/session/{session}/abort")
    await until(lambda: not app.services.live.is_running(session), "the end of the turn")


async def test_servers_that_are_dead_are_listed_and_forgotten_after_an_hour(tmp_path: Path) -> None:
    now, row = int(time.time() * 1000), "INSERT INTO replica (id, started, heartbeat, version, address) VALUES (?, ?, ?, ?, ?)"
    async with running_app(tmp_path) as app:
        with closing(sqlite3.connect(app.data_dir / "opensession.db")) as database:
            for name, age in {"dead": DEAD_AFTER_MS + 1000, "old": replicas.FORGET_AFTER_MS + 1000}.items():
                database.execute(row, (name, now - 2 * age, now - age, "0.0.9", "elsewhere:4096"))
            database.commit()
        others = {each["id"]: each["alive"] for each in await listed(app) if each["address"] == "elsewhere:4096"}
        assert others == {"old": False, "dead": False}
        await app.services.replicas.forget_dead()
        assert [each["id"] for each in await listed(app)][:-1] == ["dead"]
    async with running_app(tmp_path) as app:
        assert [each["address"] for each in await listed(app)][:-1] == ["elsewhere:4096"]  # one that stopped has left


async def test_the_list_needs_the_login(password: None, app: RunningApp) -> None:
    for query in ("replicas=1", "replicas=true", "%72eplicas=1", "a=b&replicas=on", "replicas"):
        assert (await app.client.get(f"/global/health?{query}")).status_code == 401, query
    await app.get("/global/health?directory=x")
    assert len((await app.get("/global/health?replicas=1", auth=("opencode", "right")))["replicas"]) == 1


async def test_servers_of_one_postgresql_list_each_other(tmp_path: Path, postgres: PostgresServer) -> None:
    data = {"data_dir": tmp_path / "data", "database_url": migrated(postgres)}
    async with running_app(tmp_path, **data) as one, running_app(tmp_path, **data) as two:
        ids = [each["id"] for each in await listed(one)]
        assert len(ids) == 2 and [each["id"] for each in await listed(two)] == ids
        with refused_commits() as commits:  # a check writes nothing of its own
            commits.refuses = True
            assert all(each["alive"] for each in await listed(one))
        ages = [each["heartbeatAge"] for each in await listed(one)]
        async with asyncio.timeout(60):  # each is told anew
            while not all(map(operator.lt, new := [each["heartbeatAge"] for each in await listed(one)], ages)):
                ages = [*map(max, ages, new)]
                await asyncio.sleep(0.05)
        assert {each["journalLag"] for each in await listed(one)} == {0}
        assert (tmp_path / "data" / "volume").is_file()
        assert len({each.volume for each in await one.services.store.query(work_rows.replicas)}) == 1
