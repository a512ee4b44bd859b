"""That the second API is here, all of it: clients ask this before they use it."""

from typing import Literal

from fastapi.responses import Response

from app.api.deps import wire
from app.api.json_route import ServerRequest
from app.api.v2.answers import router
from app.api.v2.errors import described
from app.schema.base import Wire

routes = router(tags=["health"])


class SecondApiHealth(Wire):
    healthy: Literal[True] = True


@routes.get("/health", operation_id="v2.health.get", response_model=SecondApiHealth, responses=described())
async def health(request: ServerRequest) -> Response:
    """Wants the login, as OpenCode's; `GET /global/health` does not."""
    return wire(SecondApiHealth())
