"""What a step took, as the ledger keeps it."""

from dataclasses import dataclass, field
from typing import Any

from app.schema.message import AssistantMessage
from app.schema.part import ModelRef, StepFinishPart, Tokens
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
