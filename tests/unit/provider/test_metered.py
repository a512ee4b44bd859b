"""Calls that count against a budget."""

from collections.abc import AsyncGenerator
from typing import Any, cast

from fake_provider import ask

from app.provider.base import ModelRequest, StreamEvent, StreamStart, TextDelta
from app.provider.registry import metered
from app.users.accounts import Budgets


class Endless:
    is_closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        try:
            yield StreamStart()
            while True:
                yield TextDelta("1", "more")
        finally:
            self.is_closed = True

    async def close(self) -> None: ...


class Unlimited:
    async def require(self, name: str) -> None: ...

    async def add(self, *counted: Any) -> None: ...


async def test_the_call_ends_with_who_reads_it() -> None:
    inner = Endless()
    stream = metered(inner.stream, "anna", cast(Budgets, Unlimited()), ask())
    await anext(stream)
    await stream.aclose()
    assert inner.is_closed
