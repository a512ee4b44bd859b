from fastapi.responses import Response

from app.api.deps import wire
from app.api.json_route import ServerRequest
from app.api.v2.answers import router
from app.api.v2.errors import ForbiddenError, described
from app.api.v2.place import LocationInfo, Place, place_of

routes = router(tags=["location"])


@routes.get("/location", operation_id="v2.location.get", response_model=LocationInfo, responses=described(ForbiddenError))
async def get(request: ServerRequest, place: Place) -> Response:
    return wire(LocationInfo.of(await place_of(request, place)))
