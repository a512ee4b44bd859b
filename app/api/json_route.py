"""Routes whose JSON bodies are read strictly: what is not valid UTF-8 JSON within bounds is a 400, no accident further in."""

from collections.abc import Callable, Coroutine, Iterable
from json import JSONDecodeError
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

DEEPEST = 200
"""Pydantic writes no value that is nested more than 255 deep, and a body stands inside other values."""


class StrictRequest(Request):
    async def json(self) -> Any:
        """Raises json.JSONDecodeError; lone surrogates, NaN and nesting beyond DEEPEST count as errors."""
        body = await self.body()
        value = orjson.loads(body)
        if body.count(b"{") + body.count(b"[") > DEEPEST and _is_deeper(value, DEEPEST):
            raise JSONDecodeError(f"nested more than {DEEPEST} deep", body.decode(), 0)
        return value


def _is_deeper(value: Any, levels: int) -> bool:
    level = [value]
    for _ in range(levels + 1):
        level = [inner for outer in level for inner in _values(outer) if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _values(container: Any) -> Iterable[Any]:
    return container.values() if isinstance(container, dict) else container


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strict


def router(**options: Any) -> APIRouter:
    return APIRouter(route_class=StrictRoute, **options)
