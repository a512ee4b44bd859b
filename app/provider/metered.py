"""Model calls that count against a user's daily budget."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from app.provider.base import ApiFailure, Ask, Finish, ModelRequest, StreamEvent
from app.provider.models.cost import tokens_and_cost
from app.users.budgets import Budgets, BudgetUsedUp


async def metered(ask: Ask, name: str, budgets: Budgets, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
    """Raises ApiFailure with status 402 where the budget of the user `name` is used up. A call that breaks off is not counted:
    nobody says what it took."""
    try:
        await budgets.require(name)
    except BudgetUsedUp as used_up:
        raise ApiFailure(str(used_up), status=402) from None
    async with aclosing(ask(request)) as events:
        async for event in events:
            if isinstance(event, Finish):
                await _count(name, budgets, request, event)
            yield event


async def _count(name: str, budgets: Budgets, request: ModelRequest, finish: Finish) -> None:
    tokens, cost = tokens_and_cost(finish.usage, request.model.cost)
    total = tokens.input + tokens.output + tokens.cache.read + tokens.cache.write
    if total:
        await budgets.add(name, cost, total)
