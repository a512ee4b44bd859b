"""What model calls took, as the ledger sums it up: every step that was ever stored, of deleted sessions too."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from app.schema.part import CacheTokens, Tokens
from app.schema.usage import GroupUsage, UsageGroup, UsageReport, UsageTotal
from app.storage.engine import Connection
from app.storage.repositories import account_rows
from app.storage.repositories.account_rows import DAY_MS, UsageFilter


def usage_report(connection: Connection, wanted: UsageFilter, group: UsageGroup) -> UsageReport:
    used = account_rows.used_in_groups(connection, wanted, group)
    groups = [GroupUsage(key=_key(group, key), **_sums([row])) for key, row in used]
    if group == "day":
        groups.sort(key=lambda of_day: of_day.key)
    return UsageReport(group=group, total=UsageTotal(**_sums([row for _, row in used])), groups=groups)


def _key(group: UsageGroup, values: tuple[Any, ...]) -> str:
    if group == "day":
        return datetime.fromtimestamp(values[0] * DAY_MS / 1000, UTC).date().isoformat()
    return "/".join(values)


def _sums(rows: Sequence[Any]) -> dict[str, Any]:
    """The fields of a UsageTotal. PostgreSQL's sums are decimals."""

    def total(name: str) -> int:
        return sum(int(getattr(row, name)) for row in rows)

    cache = CacheTokens(read=total("cache_read"), write=total("cache_write"))
    tokens = Tokens(input=total("input"), output=total("output"), reasoning=total("reasoning"), cache=cache)
    cost = math.fsum(float(row.cost) for row in rows)
    return {"tokens": tokens, "cost": cost, "turns": total("turns"), "tool_calls": total("tool_calls")}
