from app.api.roles import READS
from app.api.v2.answers import router
from app.api.v2.errors import ForbiddenError
from app.api.v2.place import LocationInfo, PlaceLocation

routes = router("", ForbiddenError, tags=["location"])


@routes.get("/location", dependencies=READS)
async def get(here: PlaceLocation) -> LocationInfo:
    return LocationInfo.of(here)
