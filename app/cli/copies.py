"""The commands that copy: `opensession export` and `import`, `backup` and `restore`, `import-opencode`."""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import uuid4

import typer

from app.cli.support import Attach, Where, fail, failures_as_sentences, session_path, settings, with_server
from app.project.snapshot.lock import SnapshotFailed
from app.schema.errors import ServiceError
from app.settings import Settings
from app.tools.web import PinnedRequests
from app.util.data_files import ServerLocks
from app.util.environment import data_home

if TYPE_CHECKING:
    from app.api.client import ApiClient
    from app.record.engine import Database
    from app.transfer.backup.manifest import Manifest
    from app.transfer.opencode.records import ImportReport, SourceReader


ExportForm = Annotated[Literal["json", "markdown"], typer.Option("--format", help="markdown: for people, not to be imported.")]
OutputFile = Annotated[Path | None, typer.Option(help="File to write, once the export is complete; standard output if absent.")]
DocumentSource = Annotated[
    str, typer.Argument(metavar="FILE|-|URL", help="`-` is standard input; the address is that of a document, or a share link.")
]
IdsOption = Annotated[Literal["keep", "new"], typer.Option("--ids", help="new: other ids for all sessions, messages and parts.")]


def export(
    session_id: Annotated[str, typer.Argument(metavar="SESSION", help="Its id; `opensession session list` shows it.")],
    children: Annotated[bool, typer.Option("--children", help="With all its descendants: the sessions of subagents.")] = False,
    form: ExportForm = "json",
    output: OutputFile = None,
    attach: Attach = None,
    where: Where = None,
) -> None:
    """Write a session as one document, as it is at this moment, in the shape of `opencode export`."""

    async def write(api: "ApiClient") -> None:
        path = f"{session_path(session_id)}/export"
        async with aclosing(api.download(path, children=str(children).lower(), format=form)) as pieces:
            await (_write_file(pieces, output.expanduser().resolve()) if output else _write_stdout(pieces))

    try:
        with_server(attach, where, write)
    except BrokenPipeError:
        raise  # whoever reads it has read enough
    except OSError as error:
        fail(f"{output or 'Standard output'} cannot be written: {error.strerror or error}")


async def _write_stdout(pieces: AsyncIterator[bytes]) -> None:
    async for piece in pieces:
        sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()


async def _write_file(pieces: AsyncIterator[bytes], path: Path) -> None:
    """An existing file is replaced by the complete export or stays as it is."""
    temporary = path.with_name(f".{path.name}.{uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            async for piece in pieces:
                file.write(piece)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def import_document(source: DocumentSource, new_ids: IdsOption = "keep", attach: Attach = None, where: Where = None) -> None:
    """Store an export, of `opensession export` or `opencode export`, in this directory: all of it or nothing."""
    from app.transfer.importing import UnreadableSource, read_source

    given = settings()
    requests = PinnedRequests(allow_private=given.allow_private_addresses)

    async def store(api: "ApiClient") -> Any:
        return await api.upload("/session/import", await read_source(source, requests, given.max_import_bytes), ids=new_ids)

    try:
        imported = with_server(attach, where, store)
    except UnreadableSource as unreadable:
        fail(str(unreadable))
    for note in imported["notes"]:
        typer.echo(note, err=True)
    below = len(imported["sessions"]) - 1
    typer.echo(f"Imported session: {imported['info']['id']}{f' and {below} below it' if below else ''}")


_DUMP_FIRST = """The database is PostgreSQL: this copies the files only. Dump it first, so that what it names is copied:
  pg_dump --format=custom --file=opensession.dump '{url}'"""
_LOAD = """The database is PostgreSQL, and not in this backup. Load the dump that was made before it, then start the servers:
  pg_restore --clean --if-exists --no-owner --single-transaction --dbname='{url}' opensession.dump
  opensession migrate"""


def backup(target: Annotated[Path, typer.Argument(metavar="FILE", help="A new file; it becomes a .tar.gz.")]) -> None:
    """Copy all that the server keeps to a file, while it runs: database, snapshots, outputs, keys."""
    from app.cli.render import progress_bars
    from app.record.engine import Database
    from app.transfer.backup.making import back_up

    here, path = settings(), target.expanduser().absolute()
    _say_of_postgres(here, _DUMP_FIRST)
    with _failures(), failures_as_sentences():
        _require_something(here)
        with closing(Database(here.resolved_database_url)) as database, progress_bars() as progress:
            manifest = asyncio.run(back_up(here.data_dir, database, path, progress))
    typer.echo(f"{path}: {_held(manifest)}")


def _require_something(here: Settings) -> None:
    """A backup makes nothing where there is no server's data."""
    from app.transfer.backup.placing import finish_restore

    database = _sqlite_file(here)
    if not here.data_dir.is_dir() or (database and not database.exists()):
        fail(f"There is nothing to back up in {here.data_dir}: set OPENSESSION_DATA_DIR as the server has it.")
    finish_restore(here.data_dir)


def restore(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="What `opensession backup` made.")],
    force: Annotated[
        bool, typer.Option("--force", help="Move what is in the data directory aside, to before-restore-….")
    ] = False,
) -> None:
    """Restore a backup into the data directory, which is empty, with no server running. Killed, it is finished or undone by the
    next start."""
    from app.cli.render import progress_bars
    from app.transfer.backup.manifest import DATABASE
    from app.transfer.backup.restoring import restore as restore_backup

    here = settings()
    database = _sqlite_file(here)
    if database and database.absolute() != (here.data_dir / DATABASE).absolute():
        fail(f"OPENSESSION_DATABASE_URL names {database}: unset it, restore, then move {DATABASE} there.")
    dialect = "sqlite" if database else "postgresql"
    path = source.expanduser().absolute()
    with _failures(), failures_as_sentences(), progress_bars() as progress:
        manifest, aside = restore_backup(path, here.data_dir, dialect, lambda: _require_no_server(here), progress, force=force)
    if aside:
        typer.echo(f"What was in {here.data_dir} is in {aside.name} there now: delete it when it is not needed any more.")
    typer.echo(f"{here.data_dir}: {_held(manifest)}")
    _say_of_postgres(here, _LOAD)


def _require_no_server(here: Settings) -> None:
    if ServerLocks(here.data_dir / "servers").any_is_held() or (_sqlite_file(here) is None and _has_live_server(here)):
        fail(f"A server works with {here.data_dir}, or with its database: stop it first.")


def _has_live_server(here: Settings) -> bool:
    from app.record.engine import Database
    from app.record.maintenance import has_server
    from app.sessions.lease import DEAD_AFTER_MS

    with closing(Database(here.resolved_database_url)) as database:
        return asyncio.run(database.read(lambda connection: has_server(connection, DEAD_AFTER_MS)))


def _sqlite_file(here: Settings) -> Path | None:
    from app.record.engine import sqlite_file

    return sqlite_file(here.resolved_database_url)


def _say_of_postgres(here: Settings, text: str) -> None:
    from app.record.engine import without_password

    if _sqlite_file(here) is None:
        typer.echo(text.format(url=without_password(here.resolved_database_url)))


def _held(manifest: "Manifest") -> str:
    size = f"{manifest.count:,} files, {manifest.bytes / 1_000_000:,.1f} MB"
    return f"{size}, schema {manifest.revision}, of version {manifest.version}"


@contextmanager
def _failures() -> Iterator[None]:
    """Prints a failure as a sentence."""
    from app.transfer.backup.manifest import BackupError

    try:
        yield
    except (BackupError, SnapshotFailed) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{error.filename or 'A file'} cannot be used: {error.strerror or error}")


SourceDirectory = Annotated[
    Path | None,
    typer.Argument(metavar="[DIR]", help="OpenCode's data directory; ~/.local/share/opencode, or $XDG_DATA_HOME/opencode."),
]


def import_opencode(
    directory: SourceDirectory = None,
    project: Annotated[Path | None, typer.Option(help="Only the sessions of this directory.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Report what would be imported, and write nothing.")] = False,
) -> None:
    """Import the sessions of OpenCode, of any version before 2. Nothing is written to its directory, and it may be running, as
    this server may. Run it again to import what is new. 1 when something could not be read."""
    from app.transfer.opencode.database import NewerOpenCode, NoOpenCodeData, readers_of

    source = (directory or data_home() / "opencode").expanduser().absolute()
    only = project.expanduser().absolute() if project else None
    try:
        with failures_as_sentences(), readers_of(source) as readers, _target(dry_run) as database:
            report = asyncio.run(_import(database, readers, source, only, dry_run))
    except (NoOpenCodeData, NewerOpenCode, ServiceError) as error:
        fail(str(error))
    except OSError as error:
        fail(f"{source} cannot be read: {error}")
    if dry_run:
        typer.echo("Nothing was written. What an import would do:")
    typer.echo("\n".join(report.lines()))
    if report.problems:
        raise typer.Exit(1)


@contextmanager
def _target(dry_run: bool) -> "Iterator[Database]":
    """The server's database. A dry run that finds none uses an empty one elsewhere."""
    from app.record.engine import Database
    from app.record.migrate import require_current, upgrade

    here = settings()
    path = here.data_dir / "opensession.db"
    with TemporaryDirectory(prefix="opensession-dry-run-") as scratch:
        is_missing = dry_run and here.database_url is None and not path.exists()
        url = f"sqlite:///{scratch}/empty.db" if is_missing else here.resolved_database_url
        with closing(Database(url)) as database:
            if is_missing or (here.database_url is None and not dry_run):
                upgrade(database.engine)
            else:
                require_current(database.engine)
            yield database


async def _import(
    database: "Database", readers: "list[SourceReader]", source: Path, only: Path | None, dry_run: bool
) -> "ImportReport":
    from app.cli.render import progress_bars
    from app.events.bus.memory import MemoryBus
    from app.record.writer import Writer
    from app.sessions.live_parts import SessionPublisher
    from app.sessions.store import Store
    from app.sessions.usage import ProjectQuota
    from app.transfer.importing import Importer
    from app.transfer.opencode.sessions import OpenCodeImport, SnapshotImport

    here, publisher = settings(), SessionPublisher(MemoryBus())
    writer = Writer(database, publisher.publish)
    store = Store(database, writer, publisher)
    importer = Importer(store, ProjectQuota(database, here.max_project_bytes))
    bytes_of_snapshots = here.max_snapshot_bytes
    snapshots = SnapshotImport(source / "snapshot", here.data_dir, database.locks, max_bytes=bytes_of_snapshots, dry_run=dry_run)
    work = OpenCodeImport(store, writer, importer, snapshots, dry_run=dry_run)
    with progress_bars() as progress:
        report = await work.run(readers, only, partial(progress, "Importing sessions"))
    await store.barrier()
    return report
