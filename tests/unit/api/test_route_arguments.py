"""What a route's function is called with is what FastAPI alone would call it with."""

from types import SimpleNamespace
from typing import Annotated, Any, Literal

import httpx2
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute

from app.api.draining import Draining
from app.api.json_route import StrictRoute
from app.api.route_arguments import is_plain
from app.main import _routes
from app.schema.base import AnyID, Wire


class Wanted(Wire):
    title: str
    parent_id: str | None = None


async def named(request: Request, place: Annotated[str | None, Query(alias="location[place]")] = None) -> str | None:
    return place or request.headers.get("x-place")


async def endpoint(
    request: Request,
    item: Annotated[AnyID, Path(alias="itemID")],
    where: Annotated[str | None, Depends(named)],
    body: Wanted | None = None,
    most: Annotated[int | None, Query(ge=1)] = None,
    order: Literal["asc", "desc"] = "asc",
    deep: bool = False,
    agent: Annotated[str, Header(alias="User-Agent")] = "",
) -> Response:
    wanted = body.wire() if body else None
    return JSONResponse([request.method, item, where, wanted, most, order, deep, agent])


async def required(body: Wanted, size: int) -> Response:
    return JSONResponse([body.wire(), size])


async def several(name: Annotated[list[str] | None, Query()] = None) -> Response:
    return JSONResponse(name)


def application(route: type[APIRoute], overrides: dict[Any, Any] | None = None) -> httpx2.AsyncClient:
    app = FastAPI()
    app.state.services = SimpleNamespace(draining=Draining())
    app.dependency_overrides = overrides or {}
    routes = APIRouter(route_class=route, dependency_overrides_provider=app)
    routes.post("/items/{itemID}")(endpoint)
    routes.put("/items")(required)
    routes.get("/items")(several)
    app.router.routes.extend(routes.routes)
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1")


def told(answer: httpx2.Response) -> Any:
    """Of an error, where it is and of what kind: its words are of the JSON parser."""
    if answer.status_code == 200:
        return answer.json()
    return answer.status_code, [(issue["type"], issue["loc"]) for issue in answer.json()["detail"]]


JSON = {"content-type": "application/json"}
REQUESTS: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/items/a", {}),
    ("POST", "/items/a?location[place]=here&most=3&order=desc&deep=yes", {"json": {"title": "T", "parentID": "p", "more": 1}}),
    ("POST", "/items/a?most=1&most=2", {"headers": {"x-place": "there", "user-agent": "me"}}),
    ("POST", "/items/a", {"content": b"null", "headers": JSON}),
    ("POST", "/items/a", {"content": b'{"title":"T"}', "headers": {"content-type": "application/json; charset=utf-8"}}),
    ("POST", "/items/a", {"content": b'{"title":"T"}', "headers": {"content-type": "application/vnd.api+json"}}),
    ("POST", "/items/a", {"content": b'{"title":"T"}', "headers": {"content-type": "text/plain"}}),
    ("POST", "/items/a", {"content": b'{"title":', "headers": JSON}),
    ("POST", "/items/a?most=0&order=up", {"json": {"title": 1}}),
    ("POST", f"/items/{'a' * 300}", {}),
    ("PUT", "/items?size=2", {"json": {"title": "T"}}),
    ("PUT", "/items?size=2", {}),
    ("PUT", "/items", {"json": {"title": "T"}}),
    ("PUT", "/items?size=big", {"json": []}),
    ("GET", "/items?name=a&name=b", {}),
]


@pytest.mark.parametrize(("method", "path", "options"), REQUESTS)
async def test_requests_are_read_as_fastapi_reads_them(method: str, path: str, options: dict[str, Any]) -> None:
    async with application(StrictRoute) as ours, application(APIRoute) as whole:
        answer, expected = await ours.request(method, path, **options), await whole.request(method, path, **options)
    assert told(answer) == told(expected)


async def test_fastapi_reads_again_what_is_not_plainly_valid() -> None:
    """It alone knows of overridden dependencies."""
    async with application(StrictRoute, {named: lambda: "FastAPI"}) as client:
        plain = await client.post("/items/a", json={"title": "T"})
        of_another_kind = await client.post("/items/a", content=b'{"title":"T"}', headers={"content-type": "application/a+json"})
    assert [answer.json()[2] for answer in (plain, of_another_kind)] == [None, "FastAPI"]


def test_no_route_takes_what_fastapi_alone_reads() -> None:
    of_fastapi = {
        route.operation_id
        for route in _routes(None).routes
        if isinstance(route, StrictRoute) and not is_plain(route.described().dependant)
    }
    assert of_fastapi == set(), "these take more than scalars, a JSON body and what functions make of them"
