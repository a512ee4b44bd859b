"""Routes whose modules are loaded for the first request to one of them."""

from functools import cached_property
from importlib import import_module
from typing import Any, cast

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send


class RoutesBelow(BaseRoute):
    """The `ROUTES` of a module, which has all routes below a path. A start does not wait for them: most clients ask for none."""

    def __init__(self, path: str, module: str) -> None:
        self.path, self._module = path, module

    @cached_property
    def routes(self) -> list[BaseRoute]:
        return cast(list[BaseRoute], import_module(self._module).ROUTES)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As the router would: the first that fits, or the first that fits but for the method."""
        found: tuple[Match, Scope] = (Match.NONE, {})
        if not scope.get("path", "").startswith(self.path):
            return found
        for route in self.routes:
            match, child_scope = route.matches(scope)
            if match is Match.FULL:
                return match, child_scope
            if found[0] is Match.NONE:
                found = match, child_scope
        return found

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        route: Any = scope["route"]
        await route.handle(scope, receive, send)
