"""What a webhook's receiver is sent: `{"id": …, "type": …, "timestamp": …, "directory": …, "data": {…}}`, with the event's id as
on event streams, and its properties as `data`. Pure."""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from app.util import clock

MAX_BODY_BYTES = 1_000_000
"""Of a larger event the receiver is sent the ids alone, with `"truncated": true`."""

_IDS = ("id", "sessionID", "messageID", "partID")


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """`id` is the same in each attempt, and on each server."""

    id: str
    type: str
    body: bytes


def message_id(id_key: str, name: str | int) -> str:
    """Does not tell the number in the journal, by which a member would know how much others do."""
    return f"evt_{hmac.digest(id_key.encode(), str(name).encode(), 'sha256').hex()[:32]}"


def message(
    id_: str, kind: str, time_ms: int, directory: str | None, properties: Mapping[str, Any], event_id: bytes = b""
) -> WebhookMessage:
    content: dict[str, Any] = {"type": kind, "timestamp": clock.iso_utc(time_ms)}
    if event_id:
        content = {"id": event_id.decode(), **content}
    if directory is not None:
        content["directory"] = directory
    body = orjson.dumps({**content, "data": properties})
    if len(body) > MAX_BODY_BYTES:
        body = orjson.dumps({**content, "data": _ids(properties), "truncated": True})
    return WebhookMessage(id_, kind, body)


def _subject(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """The session, message or part that the event is about, where it has one."""
    for name in ("info", "part"):
        if isinstance(found := properties.get(name), dict):
            return found
    return properties


def _ids(properties: Mapping[str, Any]) -> dict[str, Any]:
    subject = _subject(properties)
    return {name: subject[name] for name in _IDS if name in subject}
