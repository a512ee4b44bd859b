"""The engine: one writer, readers that see one state, an SQLite that keeps what it acknowledged."""

import asyncio
import stat
import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection, select, text
from storage_parts import Storage, session_row

from app.record.engine import Database, StorageError, make_engine
from app.record.repositories.session_rows import stored_session
from app.record.tables import SESSION


def pragma(name: str) -> str:
    return f"PRAGMA {name}"


@pytest.mark.parametrize(("name", "value"), [("journal_mode", "wal"), ("synchronous", 2), ("foreign_keys", 1)])
async def test_every_connection_is_set_up(storage: Storage, name: str, value: object) -> None:
    asked = [storage.database.read(lambda c: c.exec_driver_sql(pragma(name)).scalar_one()) for _ in range(4)]
    assert set(await asyncio.gather(*asked)) == {value}
    assert await storage.database.write(lambda c: c.exec_driver_sql(pragma(name)).scalar_one()) == value


async def test_what_raises_is_rolled_back(storage: Storage) -> None:
    def put_and_fail(connection: Connection) -> None:
        connection.execute(storage.sql.put_session.statement, [session_row()])
        raise RuntimeError("after the write")

    with pytest.raises(RuntimeError):
        await storage.database.write(put_and_fail)
    assert await storage.count(SESSION) == 0


async def test_a_read_sees_one_state_while_another_writes(storage: Storage) -> None:
    read_once, written = threading.Event(), threading.Event()

    def read_twice(connection: Connection) -> tuple[int, int]:
        before = len(connection.execute(SESSION.select()).all())
        read_once.set()
        assert written.wait(60)
        return before, len(connection.execute(SESSION.select()).all())

    reading = asyncio.create_task(storage.database.read(read_twice))
    await asyncio.to_thread(read_once.wait, 60)
    await storage.database.write(lambda c: c.execute(storage.sql.put_session.statement, [session_row()]).close())
    written.set()
    assert await reading == (0, 0)
    assert await storage.count(SESSION) == 1


async def test_readers_do_not_wait_for_the_writer(storage: Storage) -> None:
    writing, may_end = threading.Event(), threading.Event()

    def hold(connection: Connection) -> None:
        connection.execute(storage.sql.put_session.statement, [session_row()])
        writing.set()
        assert may_end.wait(60)

    task = asyncio.create_task(storage.database.write(hold))
    await asyncio.to_thread(writing.wait, 60)
    assert await storage.database.read(lambda c: stored_session(c, "ses_1")) is None
    may_end.set()
    await task


def updated(connection: Connection) -> int | None:
    return connection.execute(select(SESSION.c.updated)).scalar_one_or_none()


async def test_what_is_read_is_as_committed_last(storage: Storage) -> None:
    for number in range(3):
        row = session_row(updated=number)
        await storage.database.write(lambda c, row=row: c.execute(storage.sql.put_session.statement, [row]).close())
        assert await storage.database.read(updated) == number


async def test_a_second_process_on_the_file_waits_its_turn(storage: Storage) -> None:
    other = Database(storage.database.url)
    try:
        ids = [f"ses_{n}" for n in range(20)]
        rows = [session_row(session_id) for session_id in ids]
        both = (storage.database, other)
        await asyncio.gather(
            *(
                both[n % 2].write(lambda c, row=row: c.execute(storage.sql.put_session.statement, [row]).close())
                for n, row in enumerate(rows)
            )
        )
        assert await storage.count(SESSION) == 20
    finally:
        other.close()


async def test_a_missing_data_directory_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    directory = tmp_path / "deep" / "data"
    database = Database(f"sqlite:///{directory / 'opensession.db'}")
    await database.write(lambda c: c.execute(text("CREATE TABLE t (a)")))
    database.close()
    assert stat.S_IMODE(directory.stat().st_mode) & 0o077 == 0


async def test_a_broken_constraint_is_a_storage_error(storage: Storage) -> None:
    with pytest.raises(StorageError):
        await storage.database.write(lambda c: c.execute(text("INSERT INTO todo (session_id, body) VALUES ('ses_none', '[]')")))


async def test_a_file_that_is_no_database_is_a_storage_error(tmp_path: Path) -> None:
    path = tmp_path / "not.db"
    path.write_bytes(b"plain text, long enough to be looked at" * 40)
    with pytest.raises(StorageError):
        make_engine(f"sqlite:///{path}").connect()
