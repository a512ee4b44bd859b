"""Routes whose JSON bodies are read strictly: a body that is not valid UTF-8 JSON within bounds is answered with a 400."""

import codecs
import warnings
from collections.abc import Callable, Coroutine, Sequence
from functools import cached_property
from importlib import import_module
from json import JSONDecodeError
from typing import Any

import orjson
from fastapi import APIRouter, Depends, Request, params
from fastapi.responses import Response
from fastapi.routing import APIRoute
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.routing import Match
from starlette.types import Scope

from app.api.errors import documented
from app.api.roles import ADMIN, TAKEN, Gate
from app.api.security import BODY
from app.util.bounds import DEEPEST, has_more_values, is_deeper

warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)
"""FastAPI gives the adapter of a body an alias that has no effect, and silences the warning of that where it makes the adapter.
Ours are built later, when they are used."""

MAX_VALUES = 20_000
"""Megabytes of tiny values would take gigabytes once they are validated. Text may be as long as a body."""


class JsonRequest(Request):
    async def json(self) -> Any:
        """Raises json.JSONDecodeError; lone surrogates, NaN, nesting beyond DEEPEST and more than MAX_VALUES are errors."""
        body = (await self.body()).removeprefix(codecs.BOM_UTF8)  # which editors for Windows write
        if has_more_values(body, MAX_VALUES):
            raise JSONDecodeError(f"more than {MAX_VALUES} values", "", 0)
        value = orjson.loads(body)
        if body.count(b"{") + body.count(b"[") > DEEPEST and is_deeper(value, DEEPEST):
            raise JSONDecodeError(f"nested more than {DEEPEST} deep", body.decode(), 0)
        if incoming := self.scope.get(BODY):
            incoming.parsed()
        return value


class JsonRoute(APIRoute):
    """A route that does not say who may use it is for admins. Its answers leave out fields that are None."""

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        dependencies: Sequence[params.Depends] | None = None,
        **options: Any,
    ) -> None:
        needed = list(dependencies or ())
        if not any(isinstance(each.dependency, Gate) for each in needed):
            needed.insert(0, Depends(ADMIN))
        if options.get("status_code") == 204:
            options["response_class"] = Response
        super().__init__(path, endpoint, dependencies=needed, **{**options, "response_model_exclude_none": True})

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_strictly(request: Request) -> Response:
            try:
                return await handle(JsonRequest(request.scope, request.receive))
            finally:
                if taken := request.scope.get(TAKEN):
                    taken.done()

        return handle_strictly


def operation_id(route: APIRoute) -> str:
    """The id of a route that has no other: its tag and its function's name, `app.list_sessions` as `app.listSessions`."""
    head, *rest = route.name.split("_")
    name = head + "".join(map(str.capitalize, rest))
    return f"{route.tags[-1]}.{name}" if route.tags else name


class Router(APIRouter):
    """Its routes are tried only for a path that begins as they do and is as deep: a request would pass half of 200 otherwise."""

    @cached_property
    def _begins_and_depth(self) -> tuple[str, int]:
        return self.prefix.partition("{")[0], min(getattr(route, "path", "").count("/") for route in self.routes)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path, (begins, depth) = scope["path"], self._begins_and_depth
        may_match = path.startswith(begins) and path.count("/") >= depth
        return super().matches(scope) if may_match else (Match.NONE, {})


class LaterRouter(APIRouter):
    """The routers of a module, which is imported for the first path that begins so. Few clients use these routes, and importing
    all of them would make a start half as long again."""

    def __init__(self, module: str, *begins: str) -> None:
        super().__init__()
        self._module, self._begins = module, begins

    def load(self) -> None:
        if not self.routes:
            for each in import_module(self._module).routers:
                self.include_router(each)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if not scope["path"].startswith(self._begins):
            return Match.NONE, {}
        self.load()
        return super().matches(scope)


def router(prefix: str = "", *statuses: int, **options: Any) -> Router:
    """`statuses`: the errors that each of the router's routes may answer with."""
    defaults = {"responses": documented(*statuses), "generate_unique_id_function": operation_id}
    return Router(prefix=prefix, route_class=JsonRoute, **{**defaults, **options})
