"""OpenCode's second API, `/api/*`: it calls the same services as the first API. A route names its place by `location`, answers
`{data}` or `{location, data}`, and errors as `{_tag, message, …}`.

Begin at `shapes.py`, which has what routes share. Here are the routers, in the order in which a request is matched against them.
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
