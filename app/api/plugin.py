"""What became of the plugins and tool files that a directory's configuration names. Opensession's own."""

from app.api.deps import CurrentInstance
from app.api.json_route import router
from app.api.roles import READS
from app.plugin.loading import ExtensionStatus

routes = router("", 400, 403, tags=["plugin"])


@routes.get("/plugin", operation_id="plugin.list", dependencies=READS)
async def statuses(instance: CurrentInstance) -> list[ExtensionStatus]:
    return list(instance.extensions.plugins)
