from typing import Any, Literal

from app.schema.base import Wire
from app.schema.part import ModelRef
from app.schema.permission import Ruleset

AgentMode = Literal["subagent", "primary", "all"]


class Agent(Wire):
    name: str
    description: str | None = None
    mode: AgentMode
    native: bool | None = None
    hidden: bool | None = None
    top_p: float | None = None
    temperature: float | None = None
    color: str | None = None
    permission: Ruleset
    model: ModelRef | None = None
    variant: str | None = None
    prompt: str | None = None
    options: dict[str, Any] = {}
    steps: int | None = None


class Command(Wire):
    name: str
    description: str | None = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    mcp: bool | None = None
    source: Literal["command", "mcp"] = "command"
    template: str
    subtask: bool | None = None
    hints: list[str] = []


class Skill(Wire):
    """`content` is its text without the frontmatter."""

    name: str
    description: str
    location: str
    content: str
