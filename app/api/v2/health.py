"""That the second API is here, all of it: clients ask this before they use it."""

from typing import Literal

from app.api.roles import READS
from app.api.v2.answers import router
from app.schema.base import Wire

routes = router("", tags=["health"])


class SecondApiHealth(Wire):
    healthy: Literal[True] = True


@routes.get("/health", operation_id="v2.health.get", dependencies=READS)
async def health() -> SecondApiHealth:
    """Wants the login, as OpenCode's; `GET /global/health` does not."""
    return SecondApiHealth()
