"""Events as they come by the stream."""

from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter
from pydantic_core import from_json

from opensession_client.models import Event


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """Of a server that is newer than this client."""

    type: str
    properties: dict[str, Any]


StreamedEvent = Event | UnknownEvent


def parse_event(data: str) -> StreamedEvent:
    """Raises ValidationError for a known event that is not as the API describes it."""
    values = from_json(data)
    if values["type"] not in _known_types():
        return UnknownEvent(values["type"], values.get("properties", {}))
    event: Event = _adapter().validate_python(values)
    return event


def session_id_of(event: StreamedEvent) -> str | None:
    """The session that it tells of, None for an event of no session."""
    values = event.properties
    if isinstance(values, dict):
        return values.get("sessionID")
    for about in (values, getattr(values, "info", None), getattr(values, "part", None)):
        if found := getattr(about, "session_id", None):
            return str(found)
    is_session = event.type.startswith("session.")
    return str(values.info.id) if is_session and hasattr(values, "info") else None


@cache
def _adapter() -> TypeAdapter[Any]:
    return TypeAdapter(Event)


@cache
def _known_types() -> frozenset[str]:
    [union, *_] = get_args(Event)
    return frozenset(member.model_fields["type"].default for member in get_args(union))
