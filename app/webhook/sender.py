"""Sends a message to a receiver: signed by the Standard Webhooks specification, to a checked address, without redirects."""

import asyncio
import base64
import binascii
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from app import __version__
from app.tool.web import AddressDenied, PinnedRequests
from app.util import clock
from app.webhook.message import WebhookMessage

if TYPE_CHECKING:
    import httpx2

TIMEOUT_SECONDS = 15.0
_CONNECT_SECONDS = 10.0
_READ_BYTES = 64 * 1024
"""Of an answer's body. One with more costs the connection."""
SECRET_PREFIX = "whsec_"
_SECRET_BYTES = range(24, 65)
GONE = 410


@dataclass(frozen=True, slots=True)
class SendResult:
    """`error` is None if the message was accepted. `at` in epoch milliseconds."""

    at: int
    milliseconds: int
    status: int | None = None
    error: str | None = None

    @property
    def is_gone(self) -> bool:
        return self.status == GONE


class WebhookSender:
    """To one receiver, whose connection is kept. `close` it in the end."""

    def __init__(self, requests: PinnedRequests, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._requests = requests
        self._timeout_seconds = timeout_seconds
        self._client: httpx2.AsyncClient | None = None

    async def send(self, url: str, secret: str, message: WebhookMessage) -> SendResult:
        """Never raises for what the receiver or the network does."""
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
            error = f"{type(failure).__name__}: {failure}" if str(failure) else type(failure).__name__
        return SendResult(at, round((time.monotonic() - began) * 1000), status, error)

    async def _post(self, url: "httpx2.URL", headers: dict[str, str], body: bytes) -> int:
        if self._client is None:
            self._client = self._requests.client(_CONNECT_SECONDS)
        response = await self._requests.send(self._client, "POST", url, headers, body)
        try:
            await _read_some(response)
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


async def _read_some(response: "httpx2.Response") -> None:
    size = 0
    async for chunk in response.aiter_raw():
        size += len(chunk)
        if size > _READ_BYTES:
            return


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
    except (binascii.Error, ValueError):
        return False
    return text.startswith(SECRET_PREFIX) and len(key) in _SECRET_BYTES
