"""Model calls that count against a user's daily budget."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from app.provider.base import ApiFailure, Finish, ModelRequest, Provider, StreamEvent
from app.provider.models.cost import tokens_and_cost
from app.users.budgets import Budgets, BudgetUsedUp


class MeteredProvider:
    def __init__(self, provider: Provider, name: str, budgets: Budgets) -> None:
        self._provider = provider
        self._name = name
        self._budgets = budgets

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        """Raises ApiFailure with status 402 where the budget is used up. A call that breaks off is not counted: nobody says what
        it took."""
        try:
            await self._budgets.require(self._name)
        except BudgetUsedUp as used_up:
            raise ApiFailure(str(used_up), status=402) from None
        async with aclosing(self._provider.stream(request)) as events:
            async for event in events:
                if isinstance(event, Finish):
                    await self._count(request, event)
                yield event

    async def _count(self, request: ModelRequest, finish: Finish) -> None:
        tokens, cost = tokens_and_cost(finish.usage, request.model.cost)
        total = tokens.input + tokens.output + tokens.cache.read + tokens.cache.write
        if total:
            await self._budgets.add(self._name, cost, total)

    async def close(self) -> None:
        await self._provider.close()
