"""What model calls took, in groups."""

from typing import Annotated, Literal

from pydantic import Field

from app.schema.base import Wire
from app.schema.part import Tokens

UsageGroup = Literal["model", "provider", "day", "session", "directory", "agent"]


class UsageTotal(Wire):
    """`cost` in dollars. `turns`: prompts that were answered; `toolCalls`: tool calls of the answers."""

    tokens: Tokens = Field(default_factory=Tokens)
    cost: float = 0
    turns: int = 0
    tool_calls: int = 0


class GroupUsage(UsageTotal):
    key: Annotated[str, Field(description="`provider/model`, a provider, a day (UTC, `2026-01-31`), a session, …")]


class UsageReport(Wire):
    """`groups` add up to `total`."""

    group: UsageGroup
    total: UsageTotal
    groups: Annotated[list[GroupUsage], Field(description="The dearest first; days in their order")]
