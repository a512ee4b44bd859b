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
    groups = [_group_usage(_key(group, key), row) for key, row in account_rows.used_in_groups(connection, wanted, group)]
    if group == "day":
        groups.sort(key=lambda of_day: of_day.key)
    return UsageReport(group=group, total=_total(groups), groups=groups)


def _key(group: UsageGroup, values: tuple[Any, ...]) -> str:
    if group == "day":
        return datetime.fromtimestamp(values[0] * DAY_MS / 1000, UTC).date().isoformat()
    return "/".join(values)


def _group_usage(key: str, row: Any) -> GroupUsage:
    """PostgreSQL's sums are decimals."""
    cache = CacheTokens(read=int(row.cache_read), write=int(row.cache_write))
    tokens = Tokens(input=int(row.input), output=int(row.output), reasoning=int(row.reasoning), cache=cache)
    return GroupUsage(key=key, tokens=tokens, cost=float(row.cost), turns=int(row.turns), tool_calls=int(row.tool_calls))


def _total(groups: Sequence[UsageTotal]) -> UsageTotal:
    tokens = [group.tokens for group in groups]
    return UsageTotal(
        tokens=Tokens(
            input=sum(each.input for each in tokens),
            output=sum(each.output for each in tokens),
            reasoning=sum(each.reasoning for each in tokens),
            cache=CacheTokens(read=sum(each.cache.read for each in tokens), write=sum(each.cache.write for each in tokens)),
        ),
        cost=math.fsum(group.cost for group in groups),
        turns=sum(group.turns for group in groups),
        tool_calls=sum(group.tool_calls for group in groups),
    )
