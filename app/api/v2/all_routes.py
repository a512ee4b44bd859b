"""The modules of the second API, in the order in which a request is matched against them."""

from app.api.json_route import router
from app.api.v2 import asks, catalogue, event, files, health, integration, location, models, session, session_message, terminals

MODULES = (asks, catalogue, event, files, health, integration, location, models, session, session_message, terminals)

routes = router()
routes.routes.extend(route for module in MODULES for route in module.routes.routes)
