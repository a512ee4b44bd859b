"""A database as another machine has it."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path


def copy_database(data: Path, to: Path) -> None:
    """As a server leaves it that dies at this moment, on another machine: its lock is not to be seen."""
    to.mkdir()
    with closing(sqlite3.connect(data / "opensession.db")) as source, closing(sqlite3.connect(to / "opensession.db")) as target:
        source.backup(target)
    if (data / "snapshot").exists():
        shutil.copytree(data / "snapshot", to / "snapshot")
