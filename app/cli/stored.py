"""The commands about stored data: `opensession migrate`, `stats`, `prune` and `doctor`."""

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.support import fail, failures_as_sentences, settings
from app.schema.session import PruneReport, UsageReport, UsageTotal
from app.settings import Settings
from app.util import clock
from app.util.data_files import ServerLocks

if TYPE_CHECKING:
    from app.record.maintenance import Finding
    from app.sessions.retention import Retention

_COLUMNS = ("input", "output", "reasoning", "cache read", "cache write", "cost", "turns", "tool calls")


def migrate() -> None:
    """Upgrade the database (OPENSESSION_DATABASE_URL, or the embedded one) to the newest schema."""
    from app.record.engine import make_engine
    from app.record.migrate import HEAD, upgrade

    with failures_as_sentences():
        upgrade(make_engine(settings().resolved_database_url))
    typer.echo(f"The database is at revision {HEAD}.")


def stats(
    days: Annotated[int | None, typer.Option(min=1, help="Of the last so many days; without it of all time.")] = None,
) -> None:
    """Show what model calls took, by model: tokens, cost, turns and tool calls."""
    from app.record.repositories.account_rows import DAY_MS

    since = None if days is None else clock.now_ms() - days * DAY_MS
    with failures_as_sentences():
        report = asyncio.run(_report(since))
    rows = [("model", *_COLUMNS), *((group.key, *_cells(group)) for group in report.groups), ("total", *_cells(report.total))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        aligned = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        typer.echo("  ".join([name.ljust(widths[0]), *aligned]))


async def _report(since: int | None) -> UsageReport:
    from app.sessions.usage import usage_report
    from app.transfer.backup.placing import open_database

    with closing(open_database(settings())) as database:
        return await database.read(lambda connection: usage_report(connection, "model", since))


def _cells(used: UsageTotal) -> list[str]:
    tokens = used.tokens
    counts = (tokens.input, tokens.output, tokens.reasoning, tokens.cache.read, tokens.cache.write)
    return [*(f"{count:,}" for count in counts), f"${used.cost:,.4f}", f"{used.turns:,}", f"{used.tool_calls:,}"]


_HOURS = {"h": 1, "d": 24, "w": 7 * 24}


def prune(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="How long nobody has used them: 12h, 90d, 8w.")],
    archived_only: Annotated[bool, typer.Option("--archived-only", help="Only those that are archived.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing, say how many would be.")] = False,
) -> None:
    """Delete old sessions, each with all below it. What runs, is shared or pinned stays."""
    given = re.fullmatch(r"(\d{1,6})([hdw])", older_than)
    if given is None:
        fail("--older-than needs a number and h, d or w: 90d")
    days = int(given[1]) * _HOURS[given[2]] / 24
    if not dry_run:
        _require_no_server(days, archived_only)
    with failures_as_sentences():
        report = asyncio.run(_prune(days, archived_only, dry_run))
    done = "would be deleted" if dry_run else "deleted"
    typer.echo(f"{report.sessions} sessions in {report.trees} trees {done}.")
    kept = [f"{count} {why}" for why in ("running", "shared", "pinned") if (count := getattr(report, why))]
    if kept:
        typer.echo(f"Of the trees that are as old these stay: {', '.join(kept)}.")


def _require_no_server(days: float, archived_only: bool) -> None:
    """A server with the embedded database would not see the deletion, and its clients would go on showing the sessions."""
    wanted = settings()
    if wanted.resolved_database_url.startswith("sqlite") and ServerLocks(wanted.data_dir / "servers").any_is_held():
        body = f'{{"olderThanDays": {days:g}, "archivedOnly": {str(archived_only).lower()}}}'
        fail(
            "A server works with this database. Let it delete them, by OPENSESSION_RETENTION_DAYS or by\n"
            f"  curl -X POST http://127.0.0.1:4096/prune -H 'Content-Type: application/json' -d '{body}'"
        )


async def _prune(days: float, archived_only: bool, dry_run: bool) -> PruneReport:
    from app.sessions.retention import PruneRule

    async with _retention(settings()) as retention:
        return await retention.prune(PruneRule.older_than(days, archived_only=archived_only), dry_run=dry_run)


@asynccontextmanager
async def _retention(wanted: Settings) -> "AsyncIterator[Retention]":
    """Without a server; the servers of a shared database see the deletion by the journal."""
    from app.api.audit import AuditLog
    from app.events.bus.memory import MemoryBus
    from app.record.writer import Writer
    from app.sessions.lease import Leases
    from app.sessions.live import LiveSessions
    from app.sessions.live_parts import SessionPublisher
    from app.sessions.retention import Retention
    from app.sessions.service import SessionService
    from app.sessions.store import Store
    from app.transfer.backup.placing import open_database

    with closing(open_database(wanted)) as database:
        is_embedded = database.dialect == "sqlite"
        publisher = SessionPublisher(MemoryBus())
        writer = Writer(database, publisher.publish)
        writer.has_owners = True
        store = Store(database, writer, publisher)
        leases = Leases(database, writer, ServerLocks(wanted.data_dir / "servers") if is_embedded else None)
        audit_log = AuditLog(wanted.data_dir, None if is_embedded else f"{socket.gethostname()}-prune")
        live = LiveSessions(store, leases)
        sessions = SessionService(store, live)
        retention = Retention(database, store, sessions, live, wanted.data_dir)
        retention.on_deleted = audit_log.write_pruned
        try:
            yield retention
        finally:
            await store.barrier()
            await leases.close()
            audit_log.close()


def _is_repaired(finding: "Finding") -> bool:
    if finding.act is None:
        return False
    try:
        finding.act()
    except OSError as error:
        typer.echo(f"{finding.subject} could not be repaired: {error}")
        return False
    return True


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired.")] = False,
) -> None:
    """Look over the database, the snapshots, the data directory and this directory's configuration. 1 when a fault is left."""
    from app.cli.checks import examine
    from app.cli.render import Screen, answer

    findings = asyncio.run(examine(settings(), Path.cwd()))
    left: list[Finding] = []
    for finding in findings:
        is_repaired = repair and _is_repaired(finding)
        remedy = f" ({'repaired' if is_repaired else '--repair would'}: {finding.repair})" if finding.repair else ""
        Screen().show(answer(f"{finding.level:5}  {finding.subject}: {finding.text}{remedy}"))
        if finding.level == "fault" and not is_repaired:
            left.append(finding)
    if left:
        hint = " `opensession doctor --repair` would repair some." if any(finding.act for finding in left) else ""
        typer.echo(f"{len(left)} faults.{hint}")
        raise typer.Exit(1)
