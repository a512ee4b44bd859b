"""Events as the second API writes them: `{id, type, location, data}`, and those that it alone has."""

from collections.abc import Callable, Iterator

import orjson

from app.bus.event_id import EventId
from app.schema.permission import PermissionRequest, PermissionV2Request

_HEARTBEAT = b'{"type":"server.heartbeat"'
_PROPERTIES = b'"properties":'
_AS_IT_IS: Callable[[bytes], bytes] = bytes


def written(event_id: bytes, payload: bytes, directory: str | None) -> tuple[bytes, bytes | memoryview]:
    """The JSON of an event; the second piece shares the memory of `payload`."""
    at = payload.index(_PROPERTIES)
    where = b'"location":{"directory":%b},' % orjson.dumps(directory) if directory is not None else b""
    return b'{"id":"%b",%b%b"data":' % (event_id, payload[1:at], where), memoryview(payload)[at + len(_PROPERTIES) :]


def is_heartbeat(payload: bytes) -> bool:
    """It is a comment there."""
    return payload.startswith(_HEARTBEAT)


def also(payload: bytes, seq: int | None) -> Iterator[tuple[EventId, bytes]]:
    """What else is sent of an event: of requests to the user this API has events of its own, beside the first API's."""
    found = next((kind for kind in _OWN if payload.startswith(b'{"type":"%b",' % kind)), None)
    if found is not None:
        own, translate = _OWN[found]
        properties = payload[payload.index(_PROPERTIES) + len(_PROPERTIES) : -1]
        yield EventId.behind(seq or 0), b'{"type":"%b",%b%b}' % (own, _PROPERTIES, translate(properties))


def _asked(properties: bytes) -> bytes:
    return PermissionV2Request.of(PermissionRequest.model_validate_json(properties)).wire_json()


_OWN: dict[bytes, tuple[bytes, Callable[[bytes], bytes]]] = {
    b"permission.asked": (b"permission.v2.asked", _asked),
    b"permission.replied": (b"permission.v2.replied", _AS_IT_IS),
    b"question.asked": (b"question.v2.asked", _AS_IT_IS),
    b"question.replied": (b"question.v2.replied", _AS_IT_IS),
    b"question.rejected": (b"question.v2.rejected", _AS_IT_IS),
}
"""By the first API's type: the second's, and what makes its data of the properties."""

OWN_TYPES = {kind.decode(): own.decode() for kind, (own, _) in _OWN.items()}
