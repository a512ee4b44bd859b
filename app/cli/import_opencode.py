"""The command `opensession import-opencode`."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.support import database_must_do, fail, settings
from app.schema.errors import ServiceError
from app.transfer.opencode.database import NoOpenCodeData, default_directory, readers_of

if TYPE_CHECKING:
    from app.storage.engine import Database
    from app.transfer.opencode.records import ImportReport, SourceReader

SourceDirectory = Annotated[
    Path | None,
    typer.Argument(metavar="[DIR]", help="OpenCode's data directory; ~/.local/share/opencode, or $XDG_DATA_HOME/opencode."),
]
OnlyDirectory = Annotated[Path | None, typer.Option(help="Only the sessions of this directory.")]
ReportOnly = Annotated[bool, typer.Option("--dry-run", help="Report what would be imported, and write nothing.")]


def import_opencode(directory: SourceDirectory = None, project: OnlyDirectory = None, dry_run: ReportOnly = False) -> None:
    """Import the sessions of OpenCode, of any version before 2. Nothing is written to its directory, and it may be running, as
    this server may. Run it again to import what is new. 1 when something could not be read."""
    from app.transfer.opencode.database import NewerOpenCode

    source = (directory or default_directory()).expanduser().absolute()
    only = project.expanduser().absolute() if project else None
    try:
        with database_must_do(), readers_of(source) as readers, _target(dry_run) as database:
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
    """The server's database. A dry run that finds none goes on with an empty one elsewhere."""
    from app.storage.engine import Database
    from app.storage.migrate import require_current, upgrade

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
    from app.bus.memory import MemoryBus
    from app.cli.console import progress_bars
    from app.session.publisher import SessionPublisher
    from app.session.quota import ProjectQuota
    from app.session.store import Store
    from app.storage.statements import statements
    from app.storage.writer import Writer
    from app.transfer.importing import Importer
    from app.transfer.opencode.sessions import OpenCodeImport, SnapshotImport

    here, sql, publisher = settings(), statements(database.dialect), SessionPublisher(MemoryBus())
    writer = Writer(database, sql, publisher)
    store = Store(database, sql, writer, publisher)
    importer = Importer(store, ProjectQuota(store, here.max_project_bytes))
    bytes_of_snapshots = here.max_snapshot_bytes
    snapshots = SnapshotImport(source / "snapshot", here.data_dir, database.locks, max_bytes=bytes_of_snapshots, dry_run=dry_run)
    work = OpenCodeImport(store, writer, importer, snapshots, dry_run=dry_run)
    with progress_bars() as progress:
        report = await work.run(readers, only, partial(progress, "Importing sessions"))
    await store.barrier()
    return report
