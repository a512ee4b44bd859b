"""The commands about stored data: `opensession migrate`, `stats`, `prune` and `doctor`."""

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.support import Attach, fail, failures_as_sentences, settings, with_server
from app.settings import Settings
from app.util import clock
from app.util.data_files import ServerLocks

if TYPE_CHECKING:
    from app.record.maintenance import Finding

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
    attach: Attach = None,
) -> None:
    """Show what model calls took, by model: tokens, cost, turns and tool calls."""
    from app.record.repositories.account_rows import DAY_MS

    since = {} if days is None else {"since": clock.now_ms() - days * DAY_MS}
    report = with_server(attach, None, lambda api: api.get("/usage", **since))
    groups = [(group["key"], *_cells(group)) for group in report["groups"]]
    rows = [("model", *_COLUMNS), *groups, ("total", *_cells(report["total"]))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        aligned = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        typer.echo("  ".join([name.ljust(widths[0]), *aligned]))


def _cells(used: dict[str, Any]) -> list[str]:
    tokens, cache = used["tokens"], used["tokens"]["cache"]
    counts = (tokens["input"], tokens["output"], tokens["reasoning"], cache["read"], cache["write"])
    return [*(f"{count:,}" for count in counts), f"${used['cost']:,.4f}", f"{used['turns']:,}", f"{used['toolCalls']:,}"]


_HOURS = {"h": 1, "d": 24, "w": 7 * 24}


def prune(
    older_than: Annotated[str, typer.Option(metavar="AGE", help="How long nobody has used them: 12h, 90d, 8w.")],
    archived_only: Annotated[bool, typer.Option("--archived-only", help="Only those that are archived.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing, say how many would be.")] = False,
    attach: Attach = None,
) -> None:
    """Delete old sessions, each with all below it. What runs, is shared or pinned stays."""
    from app.api.client import error_text

    given = re.fullmatch(r"(\d{1,6})([hdw])", older_than)
    if given is None:
        fail("--older-than needs a number and h, d or w: 90d")
    if attach is None and not dry_run:
        _require_no_server(settings())
    wanted = {"olderThanDays": int(given[1]) * _HOURS[given[2]] / 24, "archivedOnly": archived_only, "dryRun": dry_run}
    report = with_server(attach, None, lambda api: api.post_slow("/prune", wanted))
    if "trees" not in report:  # an error, behind a status that was sent before
        fail(error_text(report))
    done = "would be deleted" if dry_run else "deleted"
    typer.echo(f"{report['sessions']} sessions in {report['trees']} trees {done}.")
    kept = [f"{report[why]} {why}" for why in ("running", "shared", "pinned") if report[why]]
    if kept:
        typer.echo(f"Of the trees that are as old these stay: {', '.join(kept)}.")


def _require_no_server(here: Settings) -> None:
    """A server with the embedded database would not see the deletion, and its clients would go on showing the sessions."""
    if here.resolved_database_url.startswith("sqlite") and ServerLocks(here.data_dir / "servers").any_is_held():
        fail("A server works with this database: name it with --attach, or let it delete by OPENSESSION_RETENTION_DAYS.")


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
