"""Old sessions are deleted by a rule: whole trees, without what is in use, and the room they took is given back."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from forked import PROGRAM
from postgres import PostgresServer, migrated
from running_app import RunningApp, running_app
from running_server import ROOT, this_checkout
from sqlalchemy import text
from turns import bash, say, task, until
from typer.testing import CliRunner

from app import cli
from app.record.engine import make_engine
from app.record.migrate import upgrade
from app.util import clock

DAY = 24 * 3600
COUNTS = ("session", "message", "part", "part_text", "todo", "session_diff", "share", "run_lease", "pending_ask")


@pytest.fixture
async def app(tmp_path: Path, database: dict[str, str]) -> AsyncIterator[RunningApp]:
    async with running_app(tmp_path, retention_days=90, **database) as running:
        yield running


def pass_days(days: float) -> None:
    ahead = clock.now_ms() / 1000 - time.time() + days * DAY
    clock.set_source(lambda: time.time() + ahead)


async def titles(app: RunningApp) -> set[str]:
    return {session["title"] for session in await app.get("/session")}


async def prune(app: RunningApp, days: float = 90, **fields: Any) -> dict[str, Any]:
    return await app.post("/prune", {"olderThanDays": days, **fields})


def report(trees: int = 0, sessions: int = 0, **kept: int) -> dict[str, int]:
    return {"trees": trees, "sessions": sessions, "running": 0, "shared": 0, "pinned": 0, **kept}


async def made(app: RunningApp, title: str, **fields: Any) -> str:
    return (await app.create_session(title=title, **fields))["id"]


async def test_whole_trees_go_when_nothing_in_them_is_in_use(app: RunningApp) -> None:
    app.provider.add([task("Look")], [bash("echo a")], [say("Seen.")], [say("Done.")])
    old = await made(app, "old")
    await app.prompt(old, "Go")
    await app.post(f"/session/{await made(app, 'shared')}/share")
    pinned = await made(app, "pinned below", parentID=await made(app, "above"))
    await app.call("PATCH", f"/session/{pinned}", {"pinned": True})
    lively = await made(app, "lively")
    may_end = asyncio.Event()
    app.provider.add([{"wait": may_end}, say("At last.")])
    await app.prompt_async(await made(app, "running"), "Wait")
    await until(lambda: len(app.provider.requests) > 4, "the turn")
    pass_days(100)
    await made(app, "new below", parentID=lively)
    before = await titles(app)
    expected = report(1, 2, running=1, shared=1, pinned=1)
    assert await prune(app, dryRun=True) == expected and await titles(app) == before
    async with app.events() as events:
        assert await prune(app) == expected
        assert (await events.until("session.deleted")).properties["info"]["parentID"] == old, "what is below goes first"
    gone = {"old", *(title for title in before if "subagent" in title)}
    assert await titles(app) == before - gone and len(gone) == 2
    assert [line["session"] for line in audited(app) if line["who"] == "retention"][-1] == old
    may_end.set()
    await until(lambda: not app.services.live.directories(), "the end")
    await app.call("PATCH", f"/session/{pinned}", {"pinned": False})
    pass_days(91)
    assert (await prune(app))["trees"] == 3 and await titles(app) == {"shared"}


def audited(app: RunningApp) -> list[dict[str, Any]]:
    return [json.loads(line) for path in app.data_dir.glob("audit*.log") for line in path.read_bytes().splitlines()]


async def test_nothing_is_left_of_what_was_deleted(app: RunningApp, database: dict[str, str]) -> None:
    app.provider.add([bash("echo a > new.txt")], [say("Done.")])
    await app.prompt(await made(app, "old"), "Go")
    used = (await app.get("/usage"))["total"]
    assert used["turns"] == 1
    await prune(app, 0)
    url = database.get("database_url") or f"sqlite:///{app.data_dir}/opensession.db"
    assert await asyncio.to_thread(counts, url) == dict.fromkeys(COUNTS, 0)
    assert (await app.get("/usage"))["total"] == used


def counts(url: str) -> dict[str, int]:
    engine = make_engine(url)
    with engine.connect() as connection:
        found = {table: connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one() for table in COUNTS}
    engine.dispose()
    return found


async def test_only_archived_ones_where_that_is_asked_for_and_the_server_does_it_by_a_setting(app: RunningApp) -> None:
    old = await made(app, "old")
    for session_id, times in ((old, (clock.now_ms(), 0)), (await made(app, "archived"), (clock.now_ms(),))):
        for archived in times:  # 0 brings it back
            await app.call("PATCH", f"/session/{session_id}", {"time": {"archived": float(archived)}})
    pass_days(89)
    housekeeping = app.services.housekeeping
    await housekeeping.delete_old_sessions()
    assert await titles(app) == {"old", "archived"}
    pass_days(2)
    assert await prune(app, archivedOnly=True) == report(1, 1)
    assert await titles(app) == {"old"}
    await housekeeping.delete_old_sessions()
    assert await titles(app) == set()
    await app.post("/prune", {}, expect=400)
    await app.post("/prune", {"olderThanDays": -1}, expect=400)
    await app.call("PATCH", f"/session/{await made(app, 'x')}", {"pinned": "yes"}, expect=400)


async def test_of_two_servers_at_once_each_deletes_what_the_other_has_not(app: RunningApp, database: dict[str, str]) -> None:
    for number in range(50):
        await made(app, str(number))
    pass_days(100)
    async with running_app(app.data_dir.parent / "other", workspace=app.directory, data_dir=app.data_dir, **database) as other:
        reports = await asyncio.gather(prune(app), prune(other))
    assert sum(each["trees"] for each in reports) == 50 and await titles(app) == set()


TREES = 300


def generate(url: str, trees: int = TREES, size: int = 2_000) -> None:
    """Each of a session and a child of it, with a message and five parts."""
    engine = make_engine(url)
    upgrade(engine)
    info = '{"id":"%s","slug":"s","projectID":"p","directory":"/d","title":"T","version":"1","time":{"created":1,"updated":1}%s}'
    sessions, messages, parts = [], [], []
    for number in range(trees):
        for session, parent in ((f"ses_{number}", None), (f"ses_{number}c", f"ses_{number}")):
            body = info % (session, f',"parentID":"{parent}"' if parent else "")
            row = {"id": session, "project_id": "p", "directory": "/d", "parent_id": parent, "owner": "", "title_folded": "t"}
            sessions.append({**row, "updated": 1, "body": body, "reverting": False})
            message = {"session_id": session, "id": "msg_1", "role": "user"}
            messages.append({**message, "open": False, "boundary": False, "body": "{}"})
            body = json.dumps({"type": "text", "text": "x" * size})
            part = {"session_id": session, "message_id": "msg_1", "type": "text", "body": body}
            parts += [{**part, "id": f"prt_{n}"} for n in range(5)]
    with engine.begin() as connection:
        for table, rows in (("session", sessions), ("message", messages), ("part", parts)):
            columns = ", ".join(rows[0])
            values = ", ".join(f":{column}" for column in rows[0])
            connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({values})"), rows)
    engine.dispose()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))

    def invoke(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(cli.app, ["prune", *words])
        assert done.exit_code == code, done.output
        return done.output

    (tmp_path / "data").mkdir()
    return invoke


def test_the_command_deletes_them_and_the_file_shrinks_unless_it_was_made_before_files_could(
    run: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "data" / "opensession.db"
    generate(f"sqlite:///{file}")
    before, older = file.stat().st_size, file.read_bytes()
    assert run("--older-than", "90d", "--dry-run") == "600 sessions in 300 trees would be deleted.\n"
    assert run("--older-than", "90d") == "600 sessions in 300 trees deleted.\n"
    assert file.stat().st_size < before / 5
    assert run("--older-than", "90d") == "0 sessions in 0 trees deleted.\n"
    run("--older-than", "soon", code=1)
    for path in file.parent.glob("opensession.db*"):
        path.unlink()
    file.write_bytes(older)
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        for statement in ("PRAGMA auto_vacuum=0", "PRAGMA journal_mode=DELETE", "VACUUM"):
            database.execute(statement)
    before = file.stat().st_size
    assert "deleted" in run("--older-than", "90d")
    assert file.stat().st_size >= before


async def test_the_command_leaves_it_to_a_server_that_runs(run: Callable[..., str], tmp_path: Path) -> None:
    async with running_app(tmp_path, data_dir=tmp_path / "data") as app:
        await made(app, "old")
        refused = await asyncio.to_thread(run, "--older-than", "0d", code=1)
        assert "OPENSESSION_RETENTION_DAYS" in refused and "--attach" in refused
        would = await asyncio.to_thread(run, "--older-than", "0d", "--dry-run")
        assert would.endswith("1 sessions in 1 trees would be deleted.\n")
        assert await titles(app) == {"old"}


async def test_on_postgresql_the_clients_of_a_server_that_runs_hear_of_it(
    postgres: PostgresServer, run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = migrated(postgres)
    monkeypatch.setenv("OPENSESSION_DATABASE_URL", url)
    async with running_app(tmp_path, data_dir=tmp_path / "data", database_url=url) as app, app.events() as events:
        old = await made(app, "old")
        assert await asyncio.to_thread(run, "--older-than", "0d") == "1 sessions in 1 trees deleted.\n"
        assert (await events.until("session.deleted")).properties["info"]["id"] == old
        assert await titles(app) == set()
        assert [line["session"] for line in audited(app) if line["who"] == "retention"] == [old]


@pytest.mark.parametrize("wait", [0.0, 0.2])
def test_killed_in_the_middle_it_leaves_nothing_half(run: Callable[..., str], tmp_path: Path, wait: float) -> None:
    url = f"sqlite:///{tmp_path / 'data' / 'opensession.db'}"
    generate(url)
    command, environment = [*PROGRAM, "prune", "--older-than", "90d"], {**os.environ, **this_checkout()[1]}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    audit = tmp_path / "data" / "audit.log"
    while not audit.exists() and process.poll() is None:
        time.sleep(0.01)
    time.sleep(wait)
    process.send_signal(signal.SIGKILL)
    process.wait()
    left = counts(url)
    assert left["session"] % 2 == 0 and (left["message"], left["part"]) == (left["session"], 5 * left["session"])
    run("--older-than", "90d")
    assert counts(url) == dict.fromkeys(COUNTS, 0)
