"""Which events a webhook is sent: `session.idle`, `session.*` or `*`. Pure."""

import re
from collections.abc import Iterable

from app.schema.event import (
    AnnouncedEvent,
    EventMessagePartDelta,
    EventServerConnected,
    EventServerHeartbeat,
    EventServerResync,
)

_OF_STREAMS_ALONE = (EventMessagePartDelta, EventServerConnected, EventServerHeartbeat, EventServerResync)
"""Not in the journal."""

_PATTERN = re.compile(r"\*|[a-z]+(\.[a-z]+)*(\.\*)?")


def _types(events: Iterable[type[AnnouncedEvent]]) -> frozenset[str]:
    return frozenset(event.model_fields["type"].default for event in events)


STREAMED = _types(_OF_STREAMS_ALONE)
SENT = _types(AnnouncedEvent.__subclasses__()) - STREAMED


def matches(pattern: str, kind: str) -> bool:
    return pattern in ("*", kind) or (pattern.endswith(".*") and kind.startswith(pattern[:-1]))


def problem(pattern: str) -> str | None:
    """What is wrong with a pattern."""
    if _PATTERN.fullmatch(pattern) and any(matches(pattern, kind) for kind in SENT):
        return None
    if any(matches(pattern, kind) for kind in STREAMED):
        return f"{pattern} is only sent to event streams (GET /event); webhooks are sent what the journal has"
    return f"there is no event {pattern[:100]!r}: name a type (session.idle), all of a kind (session.*), or all (*)"
