"""The message to a webhook's receiver, and sending it: `{"id": …, "type": …, "timestamp": …, "directory": …, "data": {…}}`, with
the event's id as on event streams, and its properties as `data`."""

import asyncio
import base64
import hmac
import re
import secrets
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import orjson

from app import __version__
from app.schema.event import (
    AnnouncedEvent,
    EventMessagePartDelta,
    EventServerConnected,
    EventServerHeartbeat,
    EventServerResync,
)
from app.tools.web import AddressDenied, PinnedRequests
from app.util import clock

if TYPE_CHECKING:
    import httpx2


# Which events a webhook wants: `session.idle`, `session.*` or `*`. Pure.

_PATTERN = re.compile(r"\*|[a-z]+(\.[a-z]+)*(\.\*)?")


def _types(events: Iterable[type[AnnouncedEvent]]) -> frozenset[str]:
    return frozenset(event.model_fields["type"].default for event in events)


STREAMED = _types((EventMessagePartDelta, EventServerConnected, EventServerHeartbeat, EventServerResync))
"""Events that the journal does not have."""
SENT = _types(AnnouncedEvent.__subclasses__()) - STREAMED


def matches(pattern: str, kind: str) -> bool:
    return pattern in ("*", kind) or (pattern.endswith(".*") and kind.startswith(pattern[:-1]))


def problem(pattern: str) -> str | None:
    """Why a pattern is invalid; None if it is valid."""
    if _PATTERN.fullmatch(pattern) and any(matches(pattern, kind) for kind in SENT):
        return None
    if any(matches(pattern, kind) for kind in STREAMED):
        return f"{pattern} is for event streams (GET /event): webhooks can name only what the journal has"
    return f"there is no event {pattern[:100]!r}: name a type (session.idle), all of a kind (session.*), or all (*)"


MAX_BODY_BYTES = 1_000_000
"""Of a larger event the receiver is sent only the ids, with `"truncated": true`."""

_IDS = ("id", "sessionID", "messageID", "partID")


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """`id`: the same in each attempt, and on each server."""

    id: str
    type: str
    body: bytes


def message_id(id_key: str, name: str | int) -> str:
    """Hides the number in the journal, by which a member would know how much others do."""
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


def _ids(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the session, message or part that the event is about, if there is one."""
    found = (properties.get(name) for name in ("info", "part"))
    subject = next((each for each in found if isinstance(each, dict)), properties)
    return {name: subject[name] for name in _IDS if name in subject}


# Sends a message to a receiver: signed by the Standard Webhooks specification, to a checked address, without redirects.

TIMEOUT_SECONDS = 15.0
_CONNECT_SECONDS = 10.0
_READ_BYTES = 64 * 1024
"""Of an answer's body. A connection with a larger one is closed."""
_ERROR_CHARACTERS = 500
SECRET_PREFIX = "whsec_"
_SECRET_BYTES = range(24, 65)
GONE = 410


@dataclass(frozen=True, slots=True)
class SendResult:
    """One attempt, as the log has it. `error` is None if the message was accepted. `time` in epoch milliseconds."""

    time: int
    milliseconds: int
    status: int | None = None
    error: str | None = None


class WebhookSender:
    """Sends to one receiver, whose connection is kept. To be closed by `close`."""

    def __init__(self, requests: PinnedRequests, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._requests = requests
        self._timeout_seconds = timeout_seconds
        self._client: httpx2.AsyncClient | None = None

    async def send(self, url: str, secret: str, message: WebhookMessage) -> SendResult:
        """Never raises for failures of the receiver or the network."""
        import httpx2

        at, began = clock.now_ms(), time.monotonic()
        status: int | None = None
        error: str | None = None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                status = await self._post(httpx2.URL(url), _headers(secret, message, at), message.body)
                error = _problem(status)
        except TimeoutError:
            error = f"no answer within {self._timeout_seconds:g} seconds"
        except AddressDenied as denied:
            error = str(denied)
        except (httpx2.HTTPError, httpx2.InvalidURL) as failure:
            reason = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
            error = reason[:_ERROR_CHARACTERS]  # it may quote what the receiver has sent
        return SendResult(at, round((time.monotonic() - began) * 1000), status, error)

    async def _post(self, url: "httpx2.URL", headers: dict[str, str], body: bytes) -> int:
        if self._client is None:
            self._client = self._requests.client(_CONNECT_SECONDS)
        response = await self._requests.send(self._client, "POST", url, headers, body)
        size = 0
        try:
            async for chunk in response.aiter_raw():
                size += len(chunk)
                if size > _READ_BYTES:
                    break
        finally:
            await response.aclose()
        return response.status_code

    async def close(self) -> None:
        if self._client is not None:
            await self._client.aclose()


def _headers(secret: str, message: WebhookMessage, at: int) -> dict[str, str]:
    from standardwebhooks import Webhook

    sent = datetime.fromtimestamp(at // 1000, UTC)
    return {
        "Content-Type": "application/json",
        "User-Agent": f"opensession/{__version__}",
        "webhook-id": message.id,
        "webhook-timestamp": str(at // 1000),
        "webhook-signature": Webhook(secret).sign(message.id, sent, message.body.decode()),
    }


def _problem(status: int) -> str | None:
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return f"it answered {status}: redirects are not followed"
    return f"it answered {status}"


def new_secret() -> str:
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def is_secret(text: str) -> bool:
    try:
        key = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        return False
    return text.startswith(SECRET_PREFIX) and len(key) in _SECRET_BYTES
