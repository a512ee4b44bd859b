"""OpenCode's second API, `/api/*`: another face of the services that the first API's routes call. A route names its place by
`location`, answers `{data}` or `{location, data}`, and errors as `{_tag, message, …}`.

Begin at `shapes.py`, what its routes share; here are its routers, in the order in which a request is matched against them.
"""

from app.api.v2 import asks, catalogue, files, integration, sessions

routers = (
    *sessions.routers,
    *asks.routers,
    sessions.everything,
    catalogue.health_routes,
    catalogue.location_routes,
    catalogue.routes,
    *files.routers,
    *integration.routers,
)
