"""Servers that share an SQLite file write and checkpoint in turns."""

import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from app.record.engine import (
    Database,
    DatabaseUnusable,
    WriterLock,
    WriterLockTimeout,
    has_reset_bug,
    hold_writer_lock,
    make_engine,
    require_writable,
    writer_lock,
)


@pytest.mark.parametrize(("version", "bug"), [((3, 40, 1), True), ((3, 51, 2), True), ((3, 51, 3), False), ((3, 53, 0), False)])
def test_which_versions_of_sqlite_have_the_bug(version: tuple[int, ...], bug: bool) -> None:
    assert has_reset_bug(version) is bug


def test_one_waits_for_the_other_and_no_longer_than_its_timeout(tmp_path: Path) -> None:
    mine, theirs = WriterLock(tmp_path / "a.db", 0.05), WriterLock(tmp_path / "a.db", 5)
    with theirs.held(), pytest.raises(WriterLockTimeout, match="another server"), mine.held():
        pass
    with mine.held():
        waiting = threading.Thread(target=lambda: theirs.held().__enter__())
        waiting.start()
        waiting.join(0.05)
        assert waiting.is_alive()
    waiting.join(5)
    assert not waiting.is_alive()


def test_a_file_that_cannot_be_locked_is_an_error_of_the_storage(tmp_path: Path) -> None:
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
    turns = writer_lock(make_engine(f"sqlite:///{tmp_path / 'a.db'}"))
    assert (turns is None) is (sqlite3.sqlite_version_info >= (3, 51, 3))
    assert writer_lock(make_engine("sqlite://")) is None
    with hold_writer_lock(None):
        pass


def test_a_directory_that_cannot_be_written_is_reported_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for directory in (tmp_path / "file" / "data", Path("/proc/opensession")):
        with pytest.raises(DatabaseUnusable, match="OPENSESSION_DATA_DIR"):
            require_writable(directory)


async def test_a_text_that_is_not_utf_8_hides_no_other(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'a.db'}")
    rows = "CREATE TABLE t (x TEXT)", "INSERT INTO t VALUES ('é'), (CAST(x'61ff62' AS TEXT))"
    await database.write(lambda connection: [connection.execute(text(row)) for row in rows])
    for _ in range(2):
        assert await database.read(lambda c: list(c.execute(text("SELECT x FROM t")).scalars())) == ["é", "a\ufffdb"]
    database.close()
