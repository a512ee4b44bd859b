"""What the steps of a session took in sum, its `cost` and `tokens`: the sums over the step-finish parts that it has."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pydantic import Field, TypeAdapter, ValidationError

from app.schema.base import Wire
from app.schema.message import MessageWithParts
from app.schema.part import CacheTokens, Part, StepFinishPart, Tokens
from app.schema.session import Session

_MOST_TOKENS, _MOST_DOLLARS = 10**12, 10**6
"""Of what one part counts for: clients store parts of their own, and the sums must fit the columns and stay exact."""


class Sums(NamedTuple):
    """Its fields are the columns of the session's row, in the order of SUMS."""

    cost: float = 0
    tokens_input: int = 0
    tokens_output: int = 0
    tokens_reasoning: int = 0
    tokens_cache_read: int = 0
    tokens_cache_write: int = 0

    @classmethod
    def of(cls, cost: float, tokens: Tokens) -> "Sums":
        counts = (tokens.input, tokens.output, tokens.reasoning, tokens.cache.read, tokens.cache.write)
        return cls(_bounded(cost, _MOST_DOLLARS), *(_bounded(count, _MOST_TOKENS) for count in counts))

    def plus(self, other: "Sums", sign: int = 1) -> "Sums":
        """With a `sign` of -1 minus the other."""
        return Sums._make(value + sign * added for value, added in zip(self, other, strict=True))

    def of_session(self) -> dict[str, Any]:
        """As fields of a Session."""
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
    """Of the bodies of step-finish parts, which are JSON; one that says something else counts for nothing."""
    return _total(Sums.of(step.cost, step.tokens) for step in _read(bodies))


def _read(bodies: Sequence[str]) -> list[_StepFinish]:
    """All at once, which takes a fifth of the time of one by one."""
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
