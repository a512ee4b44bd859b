"""What model calls took: what is counted of a step, and how the ledger sums it up, of deleted sessions too."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from app.schema.message import AssistantMessage
from app.schema.part import CacheTokens, ModelRef, StepFinishPart, Tokens
from app.schema.usage import GroupUsage, UsageGroup, UsageReport, UsageTotal
from app.storage.engine import Connection
from app.storage.repositories import account_rows
from app.storage.repositories.account_rows import DAY_MS, UsageFilter
from app.util import clock


@dataclass(frozen=True, slots=True)
class StepUsage:
    """`id`: of what ends the step; it is counted once. `begins_turn` if nothing has answered the prompt before. `time`: when it
    was used, in milliseconds, not when that is stored."""

    id: str
    agent: str
    model: ModelRef
    tokens: Tokens = field(default_factory=Tokens)
    cost: float = 0
    message_id: str = ""
    prompt_id: str | None = None
    begins_turn: bool = False
    time: int = field(default_factory=clock.now_ms)

    @classmethod
    def of(cls, message: AssistantMessage, end: StepFinishPart | None = None) -> "StepUsage":
        """Without an `end`, of a step that was stopped: nobody says what it took, but its tool calls are counted."""
        return cls(
            id=end.id if end else message.id,
            agent=message.agent,
            model=ModelRef(provider_id=message.provider_id, model_id=message.model_id),
            tokens=end.tokens if end else Tokens(),
            cost=end.cost if end else 0,
            message_id=message.id,
            prompt_id=message.parent_id,
            begins_turn=not message.summary,
        )

    def row(self, session_id: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "time": self.time,
            "session_id": session_id,
            "message_id": self.message_id,
            "prompt_id": self.prompt_id,
            "agent": self.agent,
            "provider_id": self.model.provider_id,
            "model_id": self.model.model_id,
            "input": self.tokens.input,
            "output": self.tokens.output,
            "reasoning": self.tokens.reasoning,
            "cache_read": self.tokens.cache.read,
            "cache_write": self.tokens.cache.write,
            "cost": self.cost,
            "turns": int(self.begins_turn),
        }


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
