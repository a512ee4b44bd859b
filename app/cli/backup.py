"""The commands `opensession backup` and `restore`."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.backup.contents import DATABASE
from app.cli.support import database_must_do, fail, settings
from app.settings import Settings
from app.snapshot.lock import SnapshotFailed
from app.util.server_locks import ServerLocks

if TYPE_CHECKING:
    from app.backup.manifest import BackupProgress, Manifest
    from app.storage.engine import Database

BackupTarget = Annotated[
    Path, typer.Argument(metavar="FILE|DIR", help="FILE.tar.gz (or .tgz) for one file, another name for a directory.")
]
BackupSource = Annotated[Path, typer.Argument(metavar="FILE|DIR", help="What `opensession backup` made.")]
Force = Annotated[bool, typer.Option("--force", help="Move what is in the data directory aside, to before-restore-….")]

_DUMP_FIRST = """The database is PostgreSQL: this copies the files only. Dump it first, so that what it names is copied:
  pg_dump --format=custom --file=opensession.dump '{url}'"""
_LOAD = """The database is PostgreSQL, and not in this backup. Load the dump that was made before it, then start the servers:
  pg_restore --clean --if-exists --no-owner --single-transaction --dbname='{url}' opensession.dump
  opensession migrate"""


def backup(target: BackupTarget) -> None:
    """Copy all that the server keeps to a file or directory, while it runs: database, snapshots, outputs, keys."""
    from app.cli.console import progress_bars
    from app.storage.engine import Database

    here, path = settings(), target.expanduser().absolute()
    _say_of_postgres(here, _DUMP_FIRST)
    with _failures(), database_must_do():
        _require_something(here)
        with closing(Database(here.resolved_database_url)) as database, progress_bars() as progress:
            manifest = asyncio.run(_back_up(here, database, path, progress))
    typer.echo(f"{path}: {_held(manifest)}")


async def _back_up(here: Settings, database: "Database", path: Path, progress: "BackupProgress") -> "Manifest":
    from app.backup.making import back_up

    return await back_up(here.data_dir, database, path, progress)


def _require_something(here: Settings) -> None:
    """Nothing is made where nothing is."""
    from app.backup.placing import finish_restore

    database = _sqlite_file(here)
    if not here.data_dir.is_dir() or (database and not database.exists()):
        fail(f"There is nothing to back up in {here.data_dir}: set OPENSESSION_DATA_DIR as the server has it.")
    finish_restore(here.data_dir)


def restore(source: BackupSource, force: Force = False) -> None:
    """Restore a backup into the data directory, which is empty, with no server running. Killed, it is finished or undone by the
    next start."""
    from app.backup.restoring import restore as restore_backup
    from app.cli.console import progress_bars

    here = settings()
    database = _sqlite_file(here)
    if database and database.absolute() != (here.data_dir / DATABASE).absolute():
        fail(f"OPENSESSION_DATABASE_URL names {database}: unset it, restore, then move {DATABASE} there.")
    dialect = "sqlite" if database else "postgresql"
    path = source.expanduser().absolute()
    with _failures(), database_must_do(), progress_bars() as progress:
        restored = restore_backup(path, here.data_dir, dialect, lambda: _require_no_server(here), progress, force=force)
    if restored.aside:
        typer.echo(
            f"What was in {here.data_dir} is in {restored.aside.name} there now: delete it when it is not needed any more."
        )
    typer.echo(f"{here.data_dir}: {_held(restored.manifest)}")
    _say_of_postgres(here, _LOAD)


def _require_no_server(here: Settings) -> None:
    if ServerLocks(here.data_dir / "servers").any_is_held() or (_sqlite_file(here) is None and _has_live_server(here)):
        fail(f"A server works with {here.data_dir}, or with its database: stop it first.")


def _has_live_server(here: Settings) -> bool:
    from app.session.lease import DEAD_AFTER_MS
    from app.storage.backup import has_server
    from app.storage.engine import Database

    with closing(Database(here.resolved_database_url)) as database:
        return asyncio.run(database.read(lambda connection: has_server(connection, DEAD_AFTER_MS)))


def _sqlite_file(here: Settings) -> Path | None:
    from app.storage.engine import sqlite_file

    return sqlite_file(here.resolved_database_url)


def _say_of_postgres(here: Settings, text: str) -> None:
    from app.storage.engine import without_password

    if _sqlite_file(here) is None:
        typer.echo(text.format(url=without_password(here.resolved_database_url)))


def _held(manifest: "Manifest") -> str:
    megabytes = sum(file.size for file in manifest.files.values()) / 1_000_000
    return f"{len(manifest.files):,} files, {megabytes:,.1f} MB, schema {manifest.revision}, of version {manifest.version}"


@contextmanager
def _failures() -> Iterator[None]:
    """Prints one as a sentence."""
    from app.backup.errors import BackupError

    try:
        yield
    except (BackupError, SnapshotFailed) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or 'A file'} cannot be used: {error.strerror or error}")
