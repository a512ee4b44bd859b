"""A small disk of a test's own, and how to fill it."""

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(directory: Path) -> Iterator[None]:
    """Mounts 8 MB at `directory`, which it makes. Skips without the right to."""
    directory.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", directory], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a small disk can be mounted by root alone")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", directory], check=True)


def fill(disk: Path) -> Path:
    """Returns the file to remove."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 512, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue
    return filler


def fill_to_the_last_write(disk: Path) -> Path:
    """Also the smallest transaction is refused: the write-ahead log has no room that it could use again."""
    with closing(sqlite3.connect(disk / "opensession.db")) as connection:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert not busy
    return fill(disk)
