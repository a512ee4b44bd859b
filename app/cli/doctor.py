"""The command `opensession doctor`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from app.cli.support import settings
from app.storage.maintenance import Finding


def doctor(
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired.")] = False,
) -> None:
    """Look over the database, the snapshots, the data directory and this directory's configuration. 1 when a fault is left."""
    from app.cli.checks import examine

    findings = asyncio.run(examine(settings(), Path.cwd()))
    left = [finding for finding in findings if not _report(finding, repair) and finding.level == "fault"]
    if left:
        hint = " `opensession doctor --repair` would repair some." if any(finding.act for finding in left) else ""
        typer.echo(f"{len(left)} faults.{hint}")
        raise typer.Exit(1)


def _report(finding: Finding, repair: bool) -> bool:
    """Prints the finding; returns whether it was repaired."""
    is_repaired = repair and finding.act is not None
    if is_repaired and finding.act:
        finding.act()
    remedy = f" ({'repaired' if is_repaired else '--repair would'}: {finding.repair})" if finding.repair else ""
    typer.echo(f"{finding.level:5}  {finding.subject}: {finding.text}{remedy}")
    return is_repaired
