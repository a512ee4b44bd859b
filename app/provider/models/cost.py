"""The cost of a step: tokens as they are stored, and dollars."""

import math
from decimal import Decimal

from app.provider.base import Usage
from app.provider.models.entries import LONG_CONTEXT
from app.schema.model import ModelPrice, Price
from app.schema.part import CacheTokens, Tokens

MOST_TOKENS = 1_000_000_000
"""Of a kind in one answer. No model takes as many, and a database adds up no more than 63 bits."""

_MILLION = Decimal(1_000_000)


def tokens_and_cost(usage: Usage, price: ModelPrice) -> tuple[Tokens, float]:
    """Dollars as a float. Charges reasoning on top of output, as OpenCode does, although `output` includes it."""
    tokens = _tokens(usage)
    return tokens, float(_dollars(tokens, _tier(tokens, price)))


def _tokens(usage: Usage) -> Tokens:
    return Tokens(
        input=_count(usage.input),
        output=_count(usage.output),
        reasoning=_count(usage.reasoning),
        cache=CacheTokens(read=_count(usage.cache_read), write=_count(usage.cache_write)),
    )


def _count(value: float | None) -> int:
    """Counts NaN, null and what is below nothing, which some providers report, as zero."""
    return min(max(int(value), 0), MOST_TOKENS) if value is not None and math.isfinite(value) else 0


def _tier(tokens: Tokens, price: ModelPrice) -> Price:
    """The highest tier that the prompt is above; where there are none, the price above 200k."""
    prompt = tokens.input + tokens.cache.read
    if price.tiers:
        reached = [each for each in price.tiers if prompt > each.tier.size]
        return max(reached, key=lambda each: each.tier.size, default=price)
    return price.experimental_over_200k if prompt > LONG_CONTEXT and price.experimental_over_200k else price


def _dollars(tokens: Tokens, price: Price) -> Decimal:
    charges = (
        (tokens.input, price.input),
        (tokens.output, price.output),
        (tokens.reasoning, price.output),
        (tokens.cache.read, price.cache.read),
        (tokens.cache.write, price.cache.write),
    )
    return sum((Decimal(count) * _rate(rate) for count, rate in charges if count and rate), Decimal(0)) / _MILLION


def _rate(value: float) -> Decimal:
    return Decimal(str(value)) if math.isfinite(value) else Decimal(0)
