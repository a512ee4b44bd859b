"""The engine: one writer, readers that see one state, an SQLite that keeps what it acknowledged and is shared in turns."""

import asyncio
import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select, text
from storage_parts import Storage, session_row

from app.record import engine as record_engine
from app.record.engine import (
    Database,
    DatabaseUnusable,
    StorageError,
    WriterLock,
    WriterLockTimeout,
    has_reset_bug,
    make_engine,
    writer_lock,
)
from app.record.tables import SESSION


def putting(storage: Storage, **columns: Any) -> Callable[[Connection], None]:
    return lambda connection: connection.execute(storage.sql.put_session.statement, [session_row(**columns)]).close()


def count(connection: Connection) -> int:
    return len(connection.execute(SESSION.select()).all())


async def test_every_connection_is_set_up(storage: Storage) -> None:
    def pragmas(connection: Connection) -> list[Any]:
        names = ("journal_mode", "synchronous", "foreign_keys")
        return [connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in names]

    asked = [storage.database.read(pragmas) for _ in range(4)]
    assert [*await asyncio.gather(*asked), await storage.database.write(pragmas)] == [["wal", 2, 1]] * 5


async def test_what_raises_is_rolled_back(storage: Storage) -> None:
    def put_and_fail(connection: Connection) -> None:
        putting(storage)(connection)
        raise RuntimeError("after the write")

    with pytest.raises(RuntimeError):
        await storage.database.write(put_and_fail)
    assert await storage.count(SESSION) == 0


async def test_a_read_sees_one_state_while_another_writes(storage: Storage) -> None:
    read_once, written = threading.Event(), threading.Event()

    def read_twice(connection: Connection) -> tuple[int, int]:
        before = count(connection)
        read_once.set()
        assert written.wait(60)
        return before, count(connection)

    reading = asyncio.create_task(storage.database.read(read_twice))
    await asyncio.to_thread(read_once.wait, 60)
    await storage.database.write(putting(storage))
    written.set()
    assert await reading == (0, 0)
    assert await storage.count(SESSION) == 1


async def test_readers_do_not_wait_for_the_writer_and_read_what_was_committed_last(storage: Storage) -> None:
    writing, may_end = threading.Event(), threading.Event()

    def hold(connection: Connection) -> None:
        putting(storage, updated=0)(connection)
        writing.set()
        assert may_end.wait(60)

    task = asyncio.create_task(storage.database.write(hold))
    await asyncio.to_thread(writing.wait, 60)
    assert await storage.database.read(count) == 0
    may_end.set()
    await task
    for number in range(1, 3):
        await storage.database.write(putting(storage, updated=number))
        assert await storage.database.read(lambda c: c.execute(select(SESSION.c.updated)).scalar_one()) == number


async def test_a_second_process_on_the_file_waits_its_turn(storage: Storage) -> None:
    other = Database(storage.database.url)
    try:
        writes = [
            server.write(putting(storage, session_id=f"ses_{n}")) for n in range(10) for server in (storage.database, other)
        ]
        await asyncio.gather(*writes)
        assert await storage.count(SESSION) == 10
    finally:
        other.close()


async def test_a_missing_data_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "data"
    database = Database(f"sqlite:///{directory / 'opensession.db'}")
    await database.write(lambda c: c.execute(text("CREATE TABLE t (a)")))
    database.close()
    assert stat.S_IMODE(directory.stat().st_mode) & 0o077 == 0


async def test_a_database_in_a_directory_that_others_enter_is_its_owners_alone(tmp_path: Path) -> None:
    """As a volume of Docker, or the state directory of a service."""
    tmp_path.chmod(0o755)
    make_engine(f"sqlite:///{tmp_path / 'opensession.db'}").connect().exec_driver_sql("CREATE TABLE t (a)")
    made = list(tmp_path.glob("opensession.db*"))
    assert len(made) > 1 and not any(stat.S_IMODE(file.stat().st_mode) & 0o077 for file in made)


def test_a_database_that_cannot_be_made_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(DatabaseUnusable, match="No space left on device"):
        make_engine(f"sqlite:///{tmp_path / 'opensession.db'}")


def test_another_engine_leaves_the_locks_of_the_first(tmp_path: Path) -> None:
    """A process that closes a file once loses its locks on it: others take the database for unused then, and remove its log."""
    path = tmp_path / "opensession.db"
    with make_engine(f"sqlite:///{path}").connect() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a)")
        make_engine(f"sqlite:///{path}")
        script = (
            "import sqlite3, sys; print(sqlite3.connect(sys.argv[1], timeout=0).execute('PRAGMA journal_mode=DELETE').fetchone())"
        )
        alone = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=False)
        assert "database is locked" in alone.stderr and "delete" not in alone.stdout


async def test_what_the_database_refuses_is_a_storage_error_that_quotes_no_row(storage: Storage, tmp_path: Path) -> None:
    """It is logged, and rows have what was said."""
    insert = text("INSERT INTO todo (session_id, body) VALUES ('ses_none', :body)")
    with pytest.raises(StorageError) as refused:
        await storage.database.write(lambda connection: connection.execute(insert, {"body": "what was said"}))
    assert "what was said" not in str(refused.value)
    (tmp_path / "not.db").write_bytes(b"plain text, long enough to be looked at" * 40)
    with pytest.raises(StorageError):
        make_engine(f"sqlite:///{tmp_path / 'not.db'}").connect()


def test_a_directory_that_cannot_be_written_is_reported_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file" / "data", Path("/proc/opensession")):
        with pytest.raises(DatabaseUnusable, match="OPENSESSION_DATA_DIR"):
            record_engine.require_writable(directory)


async def test_a_text_that_is_not_utf_8_hides_no_other(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'a.db'}")
    rows = "CREATE TABLE t (x TEXT)", "INSERT INTO t VALUES ('é'), (CAST(x'61ff62' AS TEXT))"
    await database.write(lambda connection: [connection.execute(text(row)) for row in rows])
    for _ in range(2):
        assert await database.read(lambda c: list(c.execute(text("SELECT x FROM t")).scalars())) == ["é", "a\ufffdb"]
    database.close()


# Servers that share a file write and checkpoint in turns.


@pytest.mark.parametrize(("version", "bug"), [((3, 40, 1), True), ((3, 51, 2), True), ((3, 51, 3), False), ((3, 53, 0), False)])
def test_which_versions_of_sqlite_have_the_bug(version: tuple[int, ...], bug: bool) -> None:
    assert has_reset_bug(version) is bug


def test_one_waits_for_the_other_and_no_longer_than_its_timeout(tmp_path: Path) -> None:
    mine, theirs = WriterLock(tmp_path / "a.db", 0.05), WriterLock(tmp_path / "a.db", 60)
    with theirs.held(), pytest.raises(WriterLockTimeout, match="another server"), mine.held():
        pass
    with mine.held():
        waiting = threading.Thread(target=lambda: theirs.held().__enter__())
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive()
    waiting.join(60)
    assert not waiting.is_alive()
    with pytest.raises(WriterLockTimeout, match="local disk"), WriterLock(tmp_path / "gone" / "a.db", 0.05).held():
        pass


@pytest.mark.skipif(not has_reset_bug(), reason="this SQLite needs no turns")
async def test_a_write_and_its_checkpoint_hold_the_turn(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'a.db'}")
    other = WriterLock(tmp_path / "a.db", 0.01)

    def write(connection: Connection) -> None:
        connection.execute(text("CREATE TABLE t (x)"))
        with pytest.raises(WriterLockTimeout), other.held():
            pass

    await database.write(write)
    await database.read(lambda connection: other.held().__enter__())
    database.close()


def test_other_databases_need_no_turns(tmp_path: Path) -> None:
    with writer_lock(make_engine(f"sqlite:///{tmp_path / 'a.db'}")).held():
        assert (tmp_path / "a.db-writer").exists() is has_reset_bug()
    in_memory = make_engine("sqlite://")
    with writer_lock(in_memory).held(), writer_lock(in_memory).held():
        pass
