"""The commands about what is stored: `opensession stats`."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_support import database_must_do, settings
from app.util import clock

if TYPE_CHECKING:
    from app.schema.usage import UsageReport, UsageTotal

_COLUMNS = ("input", "output", "reasoning", "cache read", "cache write", "cost", "turns", "tool calls")


Days = Annotated[int | None, typer.Option(min=1, help="Of the last so many days; without it of all time.")]


def stats(days: Days = None) -> None:
    """Show what model calls took, by model: tokens, cost, turns and tool calls."""
    from app.storage.queries import DAY_MS

    since = None if days is None else clock.now_ms() - days * DAY_MS
    with database_must_do():
        report = asyncio.run(_report(since))
    rows = [("model", *_COLUMNS), *((group.key, *_cells(group)) for group in report.groups), ("total", *_cells(report.total))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *cells in rows:
        aligned = (cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True))
        typer.echo("  ".join([name.ljust(widths[0]), *aligned]))


async def _report(since: int | None) -> "UsageReport":
    from app.session.usage import UsageLedger
    from app.storage.engine import Database
    from app.storage.migrate import require_current
    from app.storage.queries import UsageFilter

    database = Database(settings().resolved_database_url)
    try:
        require_current(database.engine)
        return await UsageLedger(database).report(UsageFilter(since=since), "model")
    finally:
        database.close()


def _cells(used: "UsageTotal") -> list[str]:
    tokens = used.tokens
    counts = (tokens.input, tokens.output, tokens.reasoning, tokens.cache.read, tokens.cache.write)
    return [*(f"{count:,}" for count in counts), f"${used.cost:,.4f}", f"{used.turns:,}", f"{used.tool_calls:,}"]
