"""Events as the second API writes them: `{id, type, location, data}`, and those that it alone has."""

from collections.abc import Callable

import orjson

from app.bus.base import Event
from app.schema.permission import PermissionRequest, PermissionV2Request

_AS_IT_IS: Callable[[bytes], bytes] = bytes


def written(event_id: bytes, event: Event) -> bytes:
    where = b"" if event.directory is None else b'"location":{"directory":%b},' % orjson.dumps(event.directory)
    return b'{"id":"%b","type":"%b",%b"data":%b}' % (event_id, event.type.encode(), where, event.properties)


def also(event: Event) -> Event | None:
    """What else is sent of an event: of requests to the user this API has events of its own, beside the first API's."""
    if event.type not in _OWN:
        return None
    own, translate = _OWN[event.type]
    data = orjson.Fragment(translate(event.properties))
    return Event(own, orjson.dumps({"type": own, "properties": data}), directory=event.directory, journaled=False)


def _asked(properties: bytes) -> bytes:
    return PermissionV2Request.of(PermissionRequest.model_validate_json(properties)).wire_json()


_OWN: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "permission.asked": ("permission.v2.asked", _asked),
    "permission.replied": ("permission.v2.replied", _AS_IT_IS),
    "question.asked": ("question.v2.asked", _AS_IT_IS),
    "question.replied": ("question.v2.replied", _AS_IT_IS),
    "question.rejected": ("question.v2.rejected", _AS_IT_IS),
}
"""By the first API's type: the second's, and what makes its data of the properties."""

OWN_TYPES = {kind: own for kind, (own, _) in _OWN.items()}
