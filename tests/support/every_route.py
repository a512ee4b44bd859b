"""All routes of the main, as requests to be made of it."""

from collections.abc import Iterator

from fastapi import FastAPI
from fastapi.routing import APIRoute, iter_route_contexts

from app import main

Route = tuple[str, str]
"""(method, path), the path's parameters in braces."""

WRITING = ("POST", "PUT", "PATCH", "DELETE")


def api_routes(app: FastAPI) -> Iterator[APIRoute]:
    """Those of included routers too."""
    main.load_all()
    found = (context.original_route for context in iter_route_contexts(app.routes))
    yield from (route for route in found if isinstance(route, APIRoute))


def every_route(app: FastAPI) -> list[Route]:
    found = [(method, route.path_format) for route in api_routes(app) for method in sorted(route.methods)]
    assert len(found) > 50
    return found


def unknown(path: str) -> str:
    """With something in the place of each parameter that no route finds."""
    return path.replace("{", "ses_").replace("}", "")
