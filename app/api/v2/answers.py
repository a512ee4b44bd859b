"""The two forms of an answer, and the routers of the routes that give them."""

from typing import Any, Generic, TypeVar

from fastapi import APIRouter
from fastapi.routing import APIRoute

from app.api.json_route import JsonRoute, Router, operation_id
from app.api.v2.errors import TaggedAnswer, described
from app.api.v2.place import LocationInfo
from app.project.location import Location
from app.schema.base import Wire

T = TypeVar("T")


class Data(Wire, Generic[T]):
    """What belongs to no directory."""

    data: T


class Located(Wire, Generic[T]):
    """What belongs to the directory that was named."""

    location: LocationInfo
    data: T


def data(value: T) -> Data[T]:
    return Data(data=value)


def located(location: Location, value: T) -> Located[T]:
    return Located(location=LocationInfo.of(location), data=value)


def _operation_id(route: APIRoute) -> str:
    return f"v2.{operation_id(route)}"


def router(prefix: str = "", *errors: type[TaggedAnswer], **options: Any) -> APIRouter:
    """`errors`: what each of its routes may answer with, beside a 400 and a 401."""
    return Router(
        f"/api{prefix.partition('{')[0]}",
        prefix=f"/api{prefix}",
        route_class=JsonRoute,
        responses=described(*errors),
        generate_unique_id_function=_operation_id,
        **options,
    )
