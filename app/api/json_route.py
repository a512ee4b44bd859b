"""Routes whose JSON bodies are read strictly: what is not valid UTF-8 JSON within bounds is a 400, no accident further in."""

from collections.abc import Callable, Coroutine
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute


class StrictRequest(Request):
    async def json(self) -> Any:
        """Raises json.JSONDecodeError; lone surrogates, NaN and nesting beyond 1,024 count as errors."""
        return orjson.loads(await self.body())


class StrictRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strict


def router(**options: Any) -> APIRouter:
    return APIRouter(route_class=StrictRoute, **options)
