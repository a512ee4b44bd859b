"""A request's route is the one that FastAPI would find."""

import re

from starlette.routing import Match
from starlette.types import Scope

from app.api.direct_routes import DirectRoutes
from app.api.json_route import StrictRoute
from app.main import _routes


def scope_of(method: str, path: str) -> Scope:
    return {"type": "http", "method": method, "path": path, "headers": []}


def test_every_route_is_found_where_fastapi_would_find_it() -> None:
    app = _routes(None)
    direct, found = DirectRoutes(app.router), 0
    for route in app.routes:
        if not isinstance(route, StrictRoute):
            continue
        path = re.sub(r"\{\w+(:path)?\}", "abc", route.path)
        for method in route.methods:
            scope = scope_of(method, path)
            first = next(each for each in app.routes if each.matches(scope)[0] is Match.FULL)
            of_first = first.matches(scope)[1]["path_params"]
            if (directly := direct.find(scope)) is not None:
                found += 1
                assert (directly, scope["path_params"]) == (first, of_first), (method, path)
            else:
                assert ":path}" in route.path, "the rest of a path is FastAPI's to find"
    assert found > 190


def test_what_no_route_is_for_is_left_to_fastapi() -> None:
    direct = DirectRoutes(_routes(None).router)
    for method, path in (("PUT", "/session"), ("HEAD", "/session"), ("GET", "/sessions"), ("GET", "/session/"), ("GET", "/api/")):
        assert direct.find(scope_of(method, path)) is None, (method, path)
