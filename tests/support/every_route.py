"""All routes of the main, as requests to be made of it."""

from collections.abc import Iterator

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from app import main

Route = tuple[str, str]
"""(method, path), the path's parameters in braces."""

WRITING = ("POST", "PUT", "PATCH", "DELETE")


def every_route(app: FastAPI) -> list[Route]:
    main.load_all()
    found = list(_api_routes(app.routes))
    assert len(found) > 50
    return found


def _api_routes(routes: list[BaseRoute]) -> Iterator[Route]:
    """Those of included routers too."""
    for route in routes:
        if isinstance(route, APIRoute):
            yield from ((method, route.path_format) for method in sorted(route.methods))
        elif hasattr(route, "original_router"):
            yield from _api_routes(route.original_router.routes)


def unknown(path: str) -> str:
    """With something in the place of each parameter that no route finds."""
    return path.replace("{", "ses_").replace("}", "")
