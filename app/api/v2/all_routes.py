"""The routers of the second API, in the order in which a request is matched against them."""

from app.api.v2 import asks, catalogue, event, files, health, integration, location, models, session, session_message, terminals

routers = (
    *session.routers,
    session_message.routes,
    *asks.routers,
    event.routes,
    health.routes,
    location.routes,
    catalogue.routes,
    models.routes,
    files.routes,
    *terminals.routers,
    *integration.routers,
)
