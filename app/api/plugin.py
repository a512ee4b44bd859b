"""What became of the plugins and tool files that a directory's configuration names. Opensession's own."""

from fastapi.responses import Response

from app.api.deps import Directory, documented, instance_of, json_bytes
from app.api.json_route import ServerRequest, router
from app.plugin.loading import ExtensionStatus
from app.session.rows import json_array

routes = router(tags=["plugin"])


@routes.get("/plugin", operation_id="plugin.list", response_model=list[ExtensionStatus], responses=documented(400, 403))
async def statuses(request: ServerRequest, where: Directory) -> Response:
    instance = await instance_of(request, where)
    return json_bytes(json_array([status.wire_json() for status in instance.extensions.plugins]))
