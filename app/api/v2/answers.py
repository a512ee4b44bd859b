"""The two forms of an answer, and the routes that give them."""

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from fastapi import APIRouter
from fastapi.responses import Response

from app.api.deps import json_bytes
from app.api.v2.errors import TaggedRoute
from app.api.v2.place import LocationInfo
from app.project.location import Location
from app.schema.base import Wire
from app.session.rows import json_array

T = TypeVar("T")


class Data(Wire, Generic[T]):
    """What belongs to no directory."""

    data: T


class Located(Wire, Generic[T]):
    """What belongs to the directory that was named."""

    location: LocationInfo
    data: T


def data(json: bytes) -> Response:
    return json_bytes(b'{"data":%b}' % json)


def located(location: Location, json: bytes) -> Response:
    return json_bytes(b'{"location":%b,"data":%b}' % (LocationInfo.of(location).wire_json(), json))


def data_list(values: Iterable[Wire]) -> Response:
    return data(json_array([value.wire_json() for value in values]))


def located_list(location: Location, values: Iterable[Wire]) -> Response:
    return located(location, json_array([value.wire_json() for value in values]))


def no_content() -> Response:
    return Response(status_code=204)


def router(prefix: str = "", **options: Any) -> APIRouter:
    return APIRouter(prefix=f"/api{prefix}", route_class=TaggedRoute, **options)
