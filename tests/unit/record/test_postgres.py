"""What SQLite is asked, a real PostgreSQL is: the storage's own tests again, the schema, servers that share it, whole turns."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from cable import Cable, CommitCable, StandstillCable, laid
from older_database import check_events, check_steps_and_reverts, put_events, put_steps_and_reverts, upgrade_to
from postgres import PostgresServer, migrated
from running_app import running_app
from sqlalchemy import Connection, make_url, text
from storage_parts import Storage, event, open_storage_at, saying, session_row, writing

# Collected here once more, they find this module's `storage`.
from test_storage_engine import test_a_read_sees_one_state_while_another_writes  # noqa: F401
from test_storage_queries import *  # noqa: F403
from test_storage_writer import *  # noqa: F403
from turns import texts
from typer.testing import CliRunner

from app import cli
from app.record.engine import Database, DatabaseUnusable, StorageError, make_engine, transaction
from app.record.maintenance import check
from app.record.migrate import HEAD, require_current, upgrade
from app.record.postgres import IDLE_IN_TRANSACTION_MS, OutcomeUnknown, postgres_engine, wait_for_writers
from app.record.tables import EVENT, SESSION
from app.record.writer import Lease, Tx, Work
from app.schema.errors import SessionBusy
from app.schema.part import Tokens
from app.sessions.lease import Leases
from app.sessions.usage import Sums

Breaks = Literal["before", "behind"]


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    return migrated(postgres)


@pytest.fixture
def empty_url(postgres: PostgresServer) -> str:
    return postgres.new_database()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Storage]:
    storage = open_storage_at(url)
    yield storage
    await storage.writer.barrier()
    storage.database.close()


@pytest.fixture
async def storage(url: str) -> AsyncIterator[Storage]:
    async with opened(url) as storage:
        yield storage


@pytest.fixture
async def other(url: str) -> AsyncIterator[Storage]:
    """Another server on the same database."""
    async with opened(url) as storage:
        yield storage


def test_no_connection_is_waited_for_without_a_limit(url: str) -> None:
    engine = make_engine(url)
    limits = {"connect_timeout": "15", "tcp_user_timeout": "15000", "keepalives_idle": "5", "keepalives_interval": "2"}
    with engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        assert {**limits, "keepalives_count": "3"}.items() <= driver.info.get_parameters().items()
        assert connection.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one() == "2500ms"
    engine.dispose()


@pytest.mark.parametrize(("set_up", "found"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")])
def test_a_commit_waits_for_the_disk_whatever_the_database_is_set_up_for(url: str, set_up: str, found: str) -> None:
    with make_engine(f"{url}?options=-csynchronous_commit%3D{set_up}").connect() as connection:
        assert connection.execute(text("SHOW synchronous_commit")).scalar_one() == found


async def test_a_server_that_stops_within_a_transaction_does_not_hold_the_others_up(storage: Storage, other: Storage) -> None:
    """Its connection ends, and it goes on with a new one."""
    with pytest.raises(StorageError), transaction(storage.database.engine, writes=True) as frozen:
        began = time.monotonic()
        async with asyncio.timeout(60):
            await other.writer.commit(writing((other.sql.put_session, [session_row()])))
        assert time.monotonic() - began > 1
        frozen.execute(text("SELECT 1"))
    await storage.writer.commit(writing((storage.sql.put_session, [session_row("ses_2")])))
    assert await other.count(SESSION) == 2


async def test_a_transaction_that_stood_still_for_too_long_is_begun_again(storage: Storage) -> None:
    """Its connection had ended when it went on."""
    begun = []

    def write(connection: Connection) -> None:
        begun.append(connection)
        time.sleep(1.5 * IDLE_IN_TRANSACTION_MS / 1000 if len(begun) == 1 else 0)
        connection.execute(SESSION.insert(), [session_row()])

    await storage.database.write(write)
    assert len(begun) == 2 and await storage.count(SESSION) == 1


ROWS = [session_row(f"ses_{number}", body="x" * 4_000) for number in range(30)]


def _write_rows(connection: Connection) -> None:
    connection.execute(SESSION.insert(), ROWS)


def _read_much(connection: Connection) -> None:
    connection.execute(text("SELECT repeat('x', 1000000) FROM generate_series(1, 60)")).all()


STANDSTILLS = {
    "before a statement": (0, _write_rows),
    "in the first byte of a message": (1, _write_rows),
    "within a message": (20_000, _write_rows),
    "between messages that are sent together": (60_000, _write_rows),
    "while it reads an answer": (1_000_000, _read_much),
}


@pytest.mark.parametrize("moment", STANDSTILLS)
async def test_a_server_that_stands_still_does_not_hold_the_others_up(
    postgres: PostgresServer, url: str, storage: Storage, figure: Callable[[str], None], moment: str
) -> None:
    """Frozen or cut off, it begins its transaction again when it can."""
    count, work = STANDSTILLS[moment]
    with laid(StandstillCable(postgres.port)) as wire:
        async with through(wire, url, postgres) as frozen:
            stands = threading.Event()

            def stand_still(connection: Connection) -> None:
                if not stands.is_set():
                    wire.hold_behind(count)
                    stands.set()
                work(connection)

            standing = asyncio.create_task(frozen.database.write(stand_still))
            await asyncio.to_thread(stands.wait, 60)
            began = time.monotonic()
            try:
                await storage.database.write(lambda connection: None)
            finally:
                wire.let_go()
            figure(f"held the others up for {time.monotonic() - began:.1f} s")
            await standing


async def test_a_server_that_computes_for_long_in_a_transaction_does_not_stand_still(url: str, storage: Storage) -> None:
    """As when a session of many thousand messages is forked, and another server's writer waits."""
    runs: list[int] = []

    def announce_many(tx: Tx) -> None:
        runs.append(0)
        for number in range(4_000):
            tx.announce(event(f"{number}"))
            time.sleep(0.001)

    async with opened(url) as computing:
        done = computing.writer.post(announce_many)
        await asyncio.to_thread(_until, lambda: bool(runs))
        await storage.database.write(lambda connection: None)
        await done
    assert len(runs) == 1


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.01)


# The schema. That the migrations make it, tests/migrations shows.


def test_snapshots_reverts_and_events_of_an_older_database_get_columns(empty_url: str) -> None:
    engine = make_engine(empty_url)
    upgrade_to(engine, "0006")
    put_steps_and_reverts(engine)
    upgrade_to(engine, "0018")
    put_events(engine)
    upgrade(engine)
    check_steps_and_reverts(engine)
    check_events(engine)
    engine.dispose()


def test_an_empty_database_is_named(empty_url: str) -> None:
    engine = make_engine(empty_url)
    with pytest.raises(DatabaseUnusable, match=f"{engine.url.database} is empty: run `opensession migrate`"):
        require_current(engine)
    assert [f"{engine.url.database} is empty" in each.text and "migrate" in each.text for each in check(engine)] == [True]
    engine.dispose()


def test_a_server_refuses_the_schema_of_another_version(url: str) -> None:
    engine = make_engine(url)
    for found, advice in (
        ("0001", "opensession migrate"),
        ("9999", "newer opensession"),
        ("0001x", "no version of opensession"),
    ):
        with engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :found"), {"found": found})
        with pytest.raises(DatabaseUnusable, match=advice):
            require_current(engine)
    engine.dispose()


# The commands.

Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    def run(url: str, *words: str) -> tuple[int, str]:
        monkeypatch.setenv("OPENSESSION_DATABASE_URL", url)
        monkeypatch.setenv("OPENSESSION_DATA_DIR", str(tmp_path / "data"))
        monkeypatch.chdir(tmp_path)
        result = CliRunner().invoke(cli.app, list(words))
        return result.exit_code, result.output

    return run


def test_serve_says_that_a_database_is_not_migrated_and_migrate_makes_it_ready(command: Command, empty_url: str) -> None:
    code, output = command(empty_url, "serve", "--port", "0")
    assert code == 1 and "run `opensession migrate`" in output and "Traceback" not in output
    for _again in range(2):
        assert command(empty_url, "migrate") == (0, f"The database is at revision {HEAD}.\n")
    engine = make_engine(empty_url)
    require_current(engine)
    engine.dispose()


@pytest.mark.parametrize("words", [("serve", "--port", "0"), ("migrate",)])
def test_a_database_out_of_reach_or_of_another_kind_is_reported_in_a_sentence(command: Command, words: tuple[str, ...]) -> None:
    code, output = command("postgresql://me:secret@127.0.0.1:1/none", *words)
    assert code == 1 and output.startswith("The database cannot be used: ") and "refused" in output
    assert "secret" not in output and "sqlalche.me" not in output
    code, output = command("mysql://127.0.0.1/none", *words)
    assert code == 1 and "mysql is not supported" in output


# Servers that share the database.


def event_change(number: int, storage: Storage, session_id: str) -> Work[None]:
    rows = [session_row(session_id, updated=number)]
    return writing((storage.sql.put_session, rows), events=[event(f"{session_id} {number}", session_id)])


async def test_the_journal_counts_on_over_all_servers(storage: Storage, other: Storage) -> None:
    """Though each touches the same rows in another order."""
    ids = [f"ses_{n}" for n in range(20)]
    for round_ in range(5):
        forth = [storage.writer.post(event_change(round_, storage, session_id)) for session_id in ids]
        back = [other.writer.post(event_change(round_, other, session_id)) for session_id in reversed(ids)]
        await asyncio.gather(*forth, *back)
    one, two = ([one.seq or 0 for one in server.bus.events] for server in (storage, other))
    assert one == sorted(one) and two == sorted(two) and sorted(one + two) == list(range(1, 201))
    assert await storage.count(EVENT) == 200


async def test_a_reader_never_sees_a_number_before_the_one_below_it(storage: Storage, other: Storage) -> None:
    """A later writer waits for an earlier one that is still at work."""
    begun, go_on = threading.Event(), threading.Event()

    def dawdle(_tx: Tx) -> None:
        begun.set()
        assert go_on.wait(60)

    slow = storage.writer.post(saying("ses_slow", session_id="ses_slow", then=dawdle))
    await asyncio.to_thread(begun.wait, 60)
    quick = other.writer.post(saying("ses_quick", session_id="ses_quick"))
    done, _ = await asyncio.wait({quick}, timeout=0.2)
    assert not done
    go_on.set()
    await asyncio.gather(slow, quick)
    assert [row.payload for row in await other.rows(EVENT)] == ["ses_slow", "ses_quick"]


async def test_of_servers_that_take_a_session_at_once_one_has_it(storage: Storage, other: Storage) -> None:
    ids = [f"ses_{n}" for n in range(30)]
    await storage.writer.commit(writing((storage.sql.put_session, [session_row(session_id) for session_id in ids])))
    one, two = Leases(storage.database, storage.writer), Leases(other.database, other.writer)
    for session_id in ids:
        outcomes = await asyncio.gather(one.acquire(session_id), two.acquire(session_id), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {Lease, SessionBusy}
    await one.close()
    await two.close()


async def test_a_lock_held_too_long_is_given_up_on(url: str) -> None:
    """A server that hangs in its transaction does not hang the others."""
    hanging, waiting = (postgres_engine(make_url(url), 1, 100) for _ in range(2))
    with hanging.begin() as holding, waiting.begin() as held_up:
        wait_for_writers(holding, 100)
        with pytest.raises(StorageError, match="lock timeout"):
            wait_for_writers(held_up, 100)
    for engine in (hanging, waiting):
        engine.dispose()


# The whole server. Its turns on PostgreSQL, also after restarts and on several servers, stand in `tests/replicas`.


async def test_an_answer_that_no_server_goes_on_with_is_gone_on_with(
    tmp_path: Path, url: str, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.turn.runs.recovery.LEFT_OPEN_AFTER_SECONDS", 0.1)
    async with running_app(tmp_path, turns=[[{"text": "Half."}], [{"text": "Whole."}]], database_url=url) as app:
        session = await app.create_session(title="Named")
        answer = await app.prompt(session["id"], "Go")
        info = {name: value for name, value in answer["info"].items() if name not in ("id", "sessionID", "finish")}
        info["time"].pop("completed")

        def leave_open(connection: Connection) -> None:
            connection.execute(text("UPDATE message SET open = true"))
            connection.execute(text("UPDATE message SET body = :body WHERE role = 'assistant'"), {"body": json.dumps(info)})

        await storage.database.write(leave_open)
        async with asyncio.timeout(60):
            while "Whole." not in str(await app.messages(session["id"])):
                await asyncio.sleep(0.05)


NUL = "\0"
LONG = "".join(chr(0x4E00 + n) for n in range(3000))
"""Cannot be compressed to what an index takes."""
STRANGE = {
    "/session/ses%00": 404,
    "/session/{id}/message/msg%00": 404,
    "/session?directory=/tmp/%00": 400,
    **dict.fromkeys(("/session?search=%00x", "/session?start=0.5", "/session?limit=1e300"), 200),
    **dict.fromkeys(("/session?start=1e300", "/session?start=nan"), 200),
}


async def test_what_its_text_and_numbers_cannot_hold_is_kept_answered_or_refused(tmp_path: Path, url: str) -> None:
    async with running_app(tmp_path, turns=[[{"text": f"one{NUL}two"}], [{"text": "Hi."}]], database_url=url) as app:
        session = (await app.create_session(title=f"tit{NUL}le"))["id"]
        await app.prompt(session, f"a{NUL}b")
        assert list(map(texts, await app.messages(session))) == [[f"a{NUL}b"], [f"one{NUL}two"]]
        assert [found["title"] for found in await app.get("/session?search=title")] == [f"tit{NUL}le"]
        for path, status in STRANGE.items():
            await app.call("GET", path.format(id=session), expect=status)
        for tail in (NUL, LONG):
            await app.prompt(session, "hi", expect=400, messageID=f"msg_{tail}")
            part = {"type": "text", "text": "hi", "id": f"prt_{tail}"}
            await app.post(f"/session/{session}/message", {"parts": [part]}, expect=400)
            await app.post("/session", {"parentID": f"ses_{tail}"}, expect=400)
        await app.prompt(session, "hi", messageID=f"msg_{'長' * 250}")


# A connection that breaks during a commit.


@asynccontextmanager
async def through(wire: Cable, url: str, postgres: PostgresServer) -> AsyncIterator[Storage]:
    """A server that reaches the database by a cable, and has done so."""
    storage = open_storage_at(by(wire, url, postgres))
    await storage.writer.commit(writing())
    yield storage
    storage.database.close()


def by(wire: Cable, url: str, postgres: PostgresServer) -> str:
    return url.replace(f":{postgres.port}/", f":{wire.port}/")


def counting(storage: Storage, session_id: str) -> Work[None]:
    """Adds 1 to what a session has cost, and journals an event."""
    added = {"of_session": session_id, **Sums.of(1.0, Tokens()).added()}
    return writing((storage.sql.add_to_session, [added]), events=[event(session_id, session_id)])


@pytest.mark.parametrize("count", [1, 20])
@pytest.mark.parametrize("breaks", ["before", "behind"])
async def test_what_a_broken_commit_stores_is_stored_once(
    postgres: PostgresServer, url: str, storage: Storage, breaks: Breaks, count: int
) -> None:
    ids = [f"ses_{number}" for number in range(count)]
    await storage.writer.commit(writing((storage.sql.add_session, [session_row(each) for each in ids])))
    with laid(CommitCable(postgres.port)) as wire:
        async with through(wire, url, postgres) as broken:
            wire.breaks = breaks
            await asyncio.gather(*(broken.writer.post(counting(broken, each)) for each in ids))
            assert wire.breaks is None and sorted(broken.bus.order) == sorted(ids)
    assert [row.cost for row in await storage.rows(SESSION)] == [1.0] * count
    assert sorted(row.payload for row in await storage.rows(EVENT)) == sorted(ids)


@pytest.mark.parametrize("breaks", ["before", "behind"])
async def test_a_commit_whose_outcome_nobody_can_tell_fails_and_is_not_repeated(
    postgres: PostgresServer, url: str, storage: Storage, breaks: Breaks
) -> None:
    ids = ["ses_0", "ses_1"]
    await storage.writer.commit(writing((storage.sql.add_session, [session_row(each) for each in ids])))
    with laid(CommitCable(postgres.port)) as wire:
        wire.for_good = True
        async with through(wire, url, postgres) as broken:
            wire.breaks = breaks
            done = [broken.writer.post(counting(broken, each)) for each in ids]
            outcomes = await asyncio.gather(*done, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [OutcomeUnknown] * 2 and broken.bus.order == []
    stored = 1.0 if breaks == "behind" else 0.0
    assert [row.cost for row in await storage.rows(SESSION)] == [stored] * 2


# Locks.

HELD = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'")
END_OTHERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
)
END_OTHER_HOLDERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


async def hold(storage: Storage, *, until: asyncio.Event | None = None) -> None:
    async with storage.database.locks.lock("session ses_1"):
        if until is not None:
            await until.wait()


async def rows_of(storage: Storage, statement: str) -> list[Any]:
    return await storage.database.read(lambda connection: list(connection.execute(text(statement)).all()))


async def test_a_lock_keeps_the_servers_of_a_database_apart(storage: Storage, other: Storage) -> None:
    value = 0

    async def add(server: Storage) -> None:
        nonlocal value
        async with server.database.locks.lock("session ses_1"):
            before = value
            await asyncio.sleep(0.002)
            value = before + 1

    await asyncio.gather(*(add(server) for server in (storage, other) * 10))
    assert value == 20


async def test_a_lock_is_kept_while_the_event_loop_stands_still(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.record.postgres.KEEP_ALIVE_SECONDS", 0.2)
    monkeypatch.setattr("app.record.postgres.IDLE_MS", 1_500)
    database, engine = Database(url), make_engine(url)
    async with database.locks.lock("session ses_1"):
        time.sleep(3)  # twice as long as an idle connection is left open
        with engine.connect() as connection:
            assert connection.execute(HELD).scalar_one() == 1
    engine.dispose()
    database.close()


async def test_a_lock_is_acquired_though_its_connection_broke(storage: Storage, other: Storage) -> None:
    await hold(other)  # the connection is made
    await rows_of(storage, END_OTHERS)
    async with other.database.locks.lock("session ses_1"):
        assert await storage.database.read(lambda connection: connection.execute(HELD).scalar_one()) == 1


async def test_a_lock_fails_where_the_database_stays_away(postgres: PostgresServer, url: str) -> None:
    with laid(CommitCable(postgres.port)) as wire:
        async with through(wire, url, postgres) as storage:
            await hold(storage)
            wire.close()
            with pytest.raises(StorageError):
                await hold(storage)


async def test_locks_of_a_server_that_is_gone_are_free(storage: Storage, other: Storage) -> None:
    holding = asyncio.create_task(hold(storage, until=asyncio.Event()))
    async with asyncio.timeout(60):
        while not await rows_of(other, END_OTHER_HOLDERS):
            await asyncio.sleep(0.01)
        await hold(other)
    holding.cancel()
    await asyncio.wait({holding})


async def test_a_lock_whose_waiter_is_cancelled_is_free(storage: Storage, other: Storage) -> None:
    await hold(storage)  # the connection is made
    for passes in range(120):
        waiting = asyncio.create_task(hold(storage, until=asyncio.Event()))
        for _ in range(passes):
            await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        async with asyncio.timeout(60):
            await hold(other)
