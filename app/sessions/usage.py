"""Usage: what is counted of a step, the sums of a session, the ledger, and the limits on a part's and a project's space."""

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from app.record.engine import Connection, Database
from app.record.maintenance import database_bytes
from app.record.repositories import account_rows, session_rows
from app.record.repositories.account_rows import DAY_MS
from app.schema.base import Wire
from app.schema.errors import ServiceError, TooLarge
from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.part import CacheTokens, ModelRef, Part, StepFinishPart, Tokens
from app.schema.permission import Ruleset
from app.schema.session import GroupUsage, Session, UsageGroup, UsageReport, UsageTotal
from app.util import clock

# The sums of a session, its `cost` and `tokens`: over the step-finish parts that it has.

_MAX_TOKENS, _MAX_DOLLARS = 10**12, 10**6
"""Bounds of what one part adds: clients store parts of their own, and the sums must fit the columns and stay exact."""


class Sums(NamedTuple):
    """The fields are columns of the session's row, in the order of SUMS."""

    cost: float = 0
    tokens_input: int = 0
    tokens_output: int = 0
    tokens_reasoning: int = 0
    tokens_cache_read: int = 0
    tokens_cache_write: int = 0

    @classmethod
    def of(cls, cost: float, tokens: Tokens) -> "Sums":
        counts = (tokens.input, tokens.output, tokens.reasoning, tokens.cache.read, tokens.cache.write)
        return cls(_bounded(cost, _MAX_DOLLARS), *(_bounded(count, _MAX_TOKENS) for count in counts))

    def plus(self, other: "Sums", sign: int = 1) -> "Sums":
        """With a `sign` of -1 the difference."""
        return Sums._make(value + sign * added for value, added in zip(self, other, strict=True))

    def added(self) -> dict[str, Any]:
        """The parameters of the statement that adds them to a session's sums."""
        return {f"add_{name}": value for name, value in self._asdict().items()}

    def of_session(self) -> dict[str, Any]:
        """The sums as fields of a Session."""
        cache = CacheTokens(read=self.tokens_cache_read, write=self.tokens_cache_write)
        tokens = Tokens(input=self.tokens_input, output=self.tokens_output, reasoning=self.tokens_reasoning, cache=cache)
        return {"cost": round(self.cost, 12), "tokens": tokens}


NOTHING = Sums()


class _StepFinish(Wire):
    cost: float
    tokens: Tokens = Field(default_factory=Tokens)


_STEPS = TypeAdapter(list[_StepFinish])


def session_sums(session: Session) -> Sums:
    tokens, cache = session.tokens, session.tokens.cache
    return Sums(session.cost, tokens.input, tokens.output, tokens.reasoning, cache.read, cache.write)


def sums_of(parts: Iterable[Part]) -> Sums:
    return _total(Sums.of(part.cost, part.tokens) for part in parts if isinstance(part, StepFinishPart))


def sums_of_messages(messages: Iterable[MessageWithParts]) -> Sums:
    return _total(sums_of(message.parts) for message in messages)


def sums_of_bodies(bodies: Sequence[str]) -> Sums:
    """The sums over the bodies of step-finish parts, which are JSON. A body of another form counts for nothing."""
    return _total(Sums.of(step.cost, step.tokens) for step in _read(bodies))


def _read(bodies: Sequence[str]) -> list[_StepFinish]:
    """Validates all at once, which takes a fifth of the time of one by one."""
    try:
        return _STEPS.validate_json(f"[{','.join(bodies)}]")
    except ValidationError:
        return [step for body in bodies for step in _read([body])] if len(bodies) > 1 else []


def _total(each: Iterable[Sums]) -> Sums:
    return Sums._make(map(sum, zip(NOTHING, *each, strict=True)))


def _bounded(value: Any, most: int) -> Any:
    if -most <= value <= most:
        return value
    return max(-most, min(value, most)) if math.isfinite(value) else 0


@dataclass(frozen=True, slots=True)
class StepUsage:
    """`id`: of the part that ends the step, else of its message; it is counted once. `begins_turn`: nothing has answered the
    prompt before. `time`: of the usage, not of the storing, in milliseconds."""

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
        """Without an `end`, of a step that was stopped: its usage is unknown, but its tool calls are counted."""
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


def usage_report(
    connection: Connection, group: UsageGroup, since: int | None = None, until: int | None = None, owner: str | None = None
) -> UsageReport:
    """See `account_rows.used_in_groups`."""
    used = account_rows.used_in_groups(connection, group, since, until, owner)
    groups = [GroupUsage(key=_key(group, key), **_sums([row])) for key, row in used]
    if group == "day":
        groups.sort(key=lambda of_day: of_day.key)
    return UsageReport(group=group, total=UsageTotal(**_sums([row for _, row in used])), groups=groups)


def _key(group: UsageGroup, values: tuple[Any, ...]) -> str:
    if group == "day":
        return clock.iso_utc(int(values[0]) * DAY_MS)[:10]
    return "/".join(values)


def _sums(rows: Sequence[Any]) -> dict[str, Any]:
    """The fields of a UsageTotal. PostgreSQL's sums are decimals."""

    def total(name: str) -> int:
        return sum(int(getattr(row, name)) for row in rows)

    cache = CacheTokens(read=total("cache_read"), write=total("cache_write"))
    tokens = Tokens(input=total("input"), output=total("output"), reasoning=total("reasoning"), cache=cache)
    cost = math.fsum(float(row.cost) for row in rows)
    return {"tokens": tokens, "cost": cost, "turns": total("turns"), "tool_calls": total("tool_calls")}


# The limits on the space of a part and of a session's rules, and on the database space of a project's sessions.


MAX_RULES_BYTES = 1_000_000
"""Of a session's permission rules, which are in every list and event of it."""


def check_rules_size(rules: Ruleset) -> None:
    """Raises TooLarge."""
    if sum(len(rule.wire_json()) for rule in rules) > MAX_RULES_BYTES:
        raise TooLarge(f"The permission rules of a session may have at most {MAX_RULES_BYTES} bytes.")


def check_part_size(part: Wire, most: int) -> None:
    """Raises TooLarge."""
    if len(part.wire_json()) > most:
        raise TooLarge(f"A part of a message may have at most {most} bytes (OPENSESSION_MAX_PART_BYTES).")


_RECHECK_SECONDS = 10.0
"""How long a check stays valid while the whole database is smaller than a tenth of the limit."""


class ProjectFull(ServiceError):
    status = 507
    name = "StorageQuotaError"

    def __init__(self, used: int, max_bytes: int) -> None:
        super().__init__(
            f"The sessions of this project take {used} bytes, and {max_bytes} are allowed (OPENSESSION_MAX_PROJECT_BYTES). "
            "Nothing was stored: delete sessions of the project, or raise the limit."
        )


class ProjectQuota:
    """Measuring a project reads all of it, so it is postponed until the database has grown enough to matter."""

    def __init__(self, database: Database, max_bytes: int) -> None:
        self._database = database
        self._max_bytes = max_bytes
        self._measured: dict[str, tuple[int, int]] = {}
        """By project, the bytes of it and of the database when it was measured."""
        self._unchecked_until = float("-inf")
        self._checking = asyncio.Lock()

    async def require_room(self, project_id: str) -> None:
        """Raises ProjectFull."""
        async with self._checking:
            # A caller that waited here uses the result of the check that it waited for.
            if time.monotonic() >= self._unchecked_until:
                await self._check(project_id)

    async def _check(self, project_id: str) -> None:
        database = await self._database.read(database_bytes)
        if database < self._max_bytes / 10:
            self._unchecked_until = time.monotonic() + _RECHECK_SECONDS
        if database < self._max_bytes:
            return
        used, before = self._measured.get(project_id, (self._max_bytes, 0))
        if 0 <= database - before < self._max_bytes - used:
            return  # even if everything stored since the measurement belongs to this project
        used = await self._database.read(partial(session_rows.project_bytes, project_id=project_id))
        self._measured[project_id] = used, database
        if used >= self._max_bytes:
            raise ProjectFull(used, self._max_bytes)
