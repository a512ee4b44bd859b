"""Finds the route of a request by the method, the first name and the number of names of its path, where FastAPI tries one route
after the other. What is not found so is left to FastAPI: other methods, paths that no route has, WebSockets."""

from collections import defaultdict

from fastapi import APIRouter
from starlette.convertors import StringConvertor
from starlette.routing import BaseRoute
from starlette.types import Receive, Scope, Send

from app.api.json_route import StrictRoute
from app.api.routes_below import RoutesBelow

_Key = tuple[str, str, int]


class DirectRoutes:
    def __init__(self, router: APIRouter) -> None:
        self._router = router
        self._routes: defaultdict[_Key, list[StrictRoute]] = defaultdict(list)
        self._not_loaded: list[RoutesBelow] = []
        self._add(router.routes)

    def _add(self, routes: list[BaseRoute]) -> None:
        for route in routes:
            if isinstance(route, RoutesBelow):
                self._not_loaded.append(route)
            elif isinstance(route, StrictRoute) and _takes_names_alone(route):
                for method in route.methods:
                    self._routes[_key(method, route.path)].append(route)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self.find(scope) if scope["type"] == "http" else None
        await (route.handle if route else self._router.app)(scope, receive, send)

    def find(self, scope: Scope) -> StrictRoute | None:
        """With the values in its path noted in the scope."""
        if route := self._find_loaded(scope):
            return route
        for below in [each for each in self._not_loaded if scope["path"].startswith(each.paths)]:
            self._not_loaded.remove(below)
            self._add(below.routes)
            if route := self._find_loaded(scope):
                return route
        return None

    def _find_loaded(self, scope: Scope) -> StrictRoute | None:
        path = scope["path"]
        for route in self._routes.get(_key(scope["method"], path), ()):
            if match := route.path_regex.match(path):
                scope["route"], scope["path_params"] = route, match.groupdict()
                return route
        return None


def _takes_names_alone(route: StrictRoute) -> bool:
    """No number, nor the rest of a path."""
    return all(isinstance(convertor, StringConvertor) for convertor in route.param_convertors.values())


def _key(method: str, path: str) -> _Key:
    first = path[1:].partition("/")[0]
    return method, first, path.count("/")
