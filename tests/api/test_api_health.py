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
from app.sessions import replicas
from app.sessions.lease import DEAD_AFTER_MS
from app.sessions.replicas import FORGET_AFTER_MS


@pytest.fixture
def unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """No heartbeat is new enough, and a failure is not remembered: every check tries a write."""
    monkeypatch.setattr(replicas, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(replicas, "TRY_AGAIN_SECONDS", 0.0)


@pytest.fixture
def database_url(postgres: PostgresServer) -> str:
    return migrated(postgres)


async def listed(app: RunningApp) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await app.get("/global/health?replicas=1"))["replicas"]
    return found


def put_replica(data_dir: Path, name: str, age_ms: int) -> None:
    now = int(time.time() * 1000)
    with closing(sqlite3.connect(data_dir / "opensession.db")) as database:
        row = (name, now - 2 * age_ms, now - age_ms, "0.0.9", "elsewhere:4096")
        database.execute("INSERT INTO replica (id, started, heartbeat, version, address) VALUES (?, ?, ?, ?, ?)", row)
        database.commit()


async def test_a_server_whose_database_accepts_no_writes_says_why(tmp_path: Path, unsure: None) -> None:
    async with running_app(tmp_path) as app:
        with refused_commits() as commits:
            commits.refuses = True
            response = await app.client.get("/global/health")
            assert response.status_code == 503 and response.headers["retry-after"] == "5"
            assert response.json() == {
                "healthy": False,
                "version": __version__,
                "reason": "The database accepts no writes: database or disk is full",
            }
        assert (await app.get("/global/health"))["healthy"]


async def test_a_database_that_hangs_is_not_waited_for(tmp_path: Path, unsure: None) -> None:
    async with running_app(tmp_path) as app:
        with closing(sqlite3.connect(app.data_dir / "opensession.db", isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            asked = time.monotonic()
            answers = await asyncio.gather(*(app.client.get("/global/health") for _ in range(5)))
            assert time.monotonic() - asked < 5 * replicas.WRITE_SECONDS, "one after the other"
            holder.execute("ROLLBACK")
        assert {answer.status_code for answer in answers} == {503}
        assert "has stored no heartbeat of this server for" in answers[0].json()["reason"]
        assert (await app.get("/global/health"))["healthy"]


async def test_checks_in_a_row_write_once(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        with refused_commits() as commits:
            commits.refuses = True
            for _ in range(100):
                assert await app.get("/global/health") == {"healthy": True, "version": __version__}, "the shape that clients know"


async def test_a_server_lists_itself(tmp_path: Path) -> None:
    async with running_app(tmp_path, turns=[[bash("sleep 60")]]) as app:
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
    async with running_app(tmp_path) as app:
        put_replica(app.data_dir, "dead", DEAD_AFTER_MS + 1000)
        put_replica(app.data_dir, "old", FORGET_AFTER_MS + 1000)
        assert {each["id"]: each["alive"] for each in await listed(app) if each["address"] == "elsewhere:4096"} == {
            "old": False,
            "dead": False,
        }
        await app.services.replicas.forget_dead()
        assert [each["id"] for each in await listed(app)][:-1] == ["dead"]
    async with running_app(tmp_path) as app:
        assert [each["address"] for each in await listed(app)][:-1] == ["elsewhere:4096"]  # one that stopped has left


async def test_the_list_needs_the_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "right")
    async with running_app(tmp_path) as app:
        for query in ("replicas=1", "replicas=true", "%72eplicas=1", "a=b&replicas=on", "replicas"):
            assert (await app.client.get(f"/global/health?{query}")).status_code == 401, query
        assert (await app.client.get("/global/health?directory=x")).status_code == 200
        response = await app.client.get("/global/health?replicas=1", auth=("opencode", "right"))
        assert response.status_code == 200 and len(response.json()["replicas"]) == 1


async def test_servers_of_one_postgresql_list_each_other(tmp_path: Path, database_url: str) -> None:
    data = {"data_dir": tmp_path / "data", "database_url": database_url}
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
        assert len({each.volume for each in await one.services.replicas.all()}) == 1
