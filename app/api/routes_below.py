"""Routes whose modules are loaded for the first request to one of them."""

from functools import cached_property
from importlib import import_module
from typing import Any, cast

from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send


class RoutesBelow(BaseRoute):
    """The routes of a module, whose paths begin with one of `paths`. A start does not wait for them: few clients ask for one."""

    def __init__(self, paths: tuple[str, ...], module: str) -> None:
        self.paths, self._module = paths, module

    @cached_property
    def routes(self) -> list[BaseRoute]:
        return cast(list[BaseRoute], import_module(self._module).routes.routes)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As the router would: the first that fits, or the first that fits but for the method."""
        found: tuple[Match, Scope] = (Match.NONE, {})
        if not scope.get("path", "").startswith(self.paths):
            return found
        for route in self.routes:
            match, child_scope = route.matches(scope)
            child_scope["route"] = route  # a WebSocket's does not say it
            if match is Match.FULL:
                return match, child_scope
            if found[0] is Match.NONE:
                found = match, child_scope
        return found

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        route: Any = scope["route"]
        await route.handle(scope, receive, send)
