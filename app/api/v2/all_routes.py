"""The routers of the second API, in the order in which a request is matched against them; and two that stand alone."""

from typing import Literal

from app.api.roles import READS
from app.api.v2 import asks, catalogue, event, files, integration, models, session, session_message, terminals
from app.api.v2.errors import ForbiddenError
from app.api.v2.shapes import LocationInfo, PlaceLocation, router
from app.schema.base import Wire

health_routes = router("", tags=["health"])
location_routes = router("", ForbiddenError, tags=["location"])


class SecondApiHealth(Wire):
    healthy: Literal[True] = True


@health_routes.get("/health", operation_id="v2.health.get", dependencies=READS)
async def health() -> SecondApiHealth:
    """Wants the login, as OpenCode's; `GET /global/health` does not."""
    return SecondApiHealth()


@location_routes.get("/location", operation_id="v2.location.get", dependencies=READS)
async def get(here: PlaceLocation) -> LocationInfo:
    return LocationInfo.of(here)


routers = (
    *session.routers,
    session_message.routes,
    *asks.routers,
    event.routes,
    health_routes,
    location_routes,
    catalogue.routes,
    models.routes,
    files.routes,
    *terminals.routers,
    *integration.routers,
)
