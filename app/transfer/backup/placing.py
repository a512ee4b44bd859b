"""Exchanges the content of a data directory for a restored one, in steps that can be finished after a kill.

    .restore/     is being unpacked and checked: after a kill it is removed
    .restored/    the same directory under another name, and by that decided: after a kill the exchange is finished

It is inside the data directory, because a mounted volume cannot be renamed. What was there before is moved aside, not deleted.
"""

import os
import shutil
from pathlib import Path

import orjson

from app.record.engine import Database, require_writable
from app.record.migrate import require_current, upgrade
from app.settings import Settings
from app.transfer.backup.manifest import RestoreUnderWay, belongings, database_files
from app.util.data_files import lock_directory

STAGING = ".restore"
DECIDED = ".restored"
INCOMING = "data"
_PLAN = "exchange.json"
_OUTGOING = "before"


def finish_restore(data_dir: Path) -> None:
    """Finishes or undoes what a killed restore left. Raises RestoreUnderWay if it is alive."""
    if (data_dir / DECIDED).is_dir():
        with lock_directory(data_dir / DECIDED, wait=True):
            exchange(data_dir)
    if (data_dir / STAGING).is_dir():
        with lock_directory(data_dir / STAGING) as is_ours:
            if not is_ours:
                raise RestoreUnderWay(f"A backup is being restored into {data_dir}: wait until that ends.")
            shutil.rmtree(data_dir / STAGING, ignore_errors=True)


def commit_restore(data_dir: Path, aside: str) -> None:
    """From here on the restore will be finished, whatever happens. `aside`: where the present content goes."""
    outgoing = [path.name for path in (*database_files(data_dir), *belongings(data_dir))]
    (data_dir / STAGING / _PLAN).write_bytes(orjson.dumps({"aside": aside, "outgoing": outgoing}))
    os.sync()
    (data_dir / STAGING).rename(data_dir / DECIDED)
    os.sync()


def exchange(data_dir: Path) -> None:
    """The caller has locked the directory. Each step skips what an earlier attempt has done."""
    decided = data_dir / DECIDED
    if not (decided / _PLAN).exists():  # another process has finished it while this one waited
        return
    plan = orjson.loads((decided / _PLAN).read_bytes())
    outgoing, incoming = decided / _OUTGOING, decided / INCOMING
    aside = data_dir / plan["aside"]
    if plan["outgoing"] and not aside.exists():
        outgoing.mkdir(mode=0o700, exist_ok=True)
        for name in plan["outgoing"]:
            if not (outgoing / name).exists():
                (data_dir / name).rename(outgoing / name)
        outgoing.rename(aside)
    for path in sorted(incoming.iterdir()):
        path.rename(data_dir / path.name)
    os.sync()
    decided.rename(data_dir / STAGING)
    shutil.rmtree(data_dir / STAGING)


# Opens the database that the servers of these settings use.


def open_database(settings: Settings) -> Database:
    """First finishes a killed restore. Migrates the embedded database; a shared one is migrated by `opensession migrate`. Raises
    DatabaseUnusable and StorageError."""
    require_writable(settings.data_dir)
    finish_restore(settings.data_dir)
    database = Database(settings.resolved_database_url)
    if settings.database_url is None:
        upgrade(database.engine)
    else:
        require_current(database.engine)
    return database
