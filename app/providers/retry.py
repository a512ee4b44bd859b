"""Decides whether and when to retry a request to a provider. Pure."""

import email.utils
from collections.abc import Mapping

from app.providers.base import ApiFailure, ContextOverflow, ProviderFailure
from app.util.bounds import parse_json

INITIAL_MS = 2_000
FACTOR = 2
MAX_DELAY_MS = 30_000
MAX_ATTEMPTS = 10
MAX_ELAPSED_MS = 600_000


def decide_retry(failure: ProviderFailure, attempt: int, elapsed_ms: int, now_ms: int) -> tuple[int, str] | None:
    """The delay in milliseconds before the next request, and the reason shown to clients meanwhile. None: the request is not sent
    again. `attempt` counts the failures so far, from 1; `elapsed_ms` since the first request."""
    reason = retryable_reason(failure)
    if reason is None or attempt >= MAX_ATTEMPTS:
        return None
    delay = delay_ms(failure, attempt, now_ms)
    return (delay, reason) if elapsed_ms + delay <= MAX_ELAPSED_MS else None


def retryable_reason(failure: ProviderFailure) -> str | None:
    """The reason shown to clients during the wait; None if a retry will not help."""
    if isinstance(failure, ContextOverflow):
        return None
    if isinstance(failure, ApiFailure) and failure.retryable:
        return "Provider is overloaded" if "Overloaded" in failure.message else failure.message
    return _reason_in_json(failure.message)


def _reason_in_json(message: str) -> str | None:
    """Some providers answer with status 200 or 400 and a body that describes a retryable error."""
    try:
        body = parse_json(message)
    except ValueError:
        return None
    if not isinstance(body, dict):
        return None
    error = body["error"] if isinstance(body.get("error"), dict) else {}
    if body.get("type") == "error" and error.get("type") == "too_many_requests":
        return "Too Many Requests"
    if any(word in str(body.get("code", "")) for word in ("exhausted", "unavailable")):
        return "Provider is overloaded"
    if "rate_limit" in str(error.get("code", "")):
        return "Rate Limited"
    texts = [str(text) for text in (body.get("type"), error.get("type"), error.get("code"), error.get("message"))]
    return "Provider Server Error" if any("no_kv_space" in text or "server_error" in text for text in texts) else None


def delay_ms(failure: ProviderFailure, attempt: int, now_ms: int) -> int:
    """The delay from the provider's headers, or exponential backoff from 2 s to 30 s."""
    headers = failure.headers if isinstance(failure, ApiFailure) and failure.headers else {}
    asked = _asked_for(headers, now_ms)
    return asked if asked is not None else min(INITIAL_MS * FACTOR ** (attempt - 1), MAX_DELAY_MS)


def _asked_for(headers: Mapping[str, str], now_ms: int) -> int | None:
    if (milliseconds := _number(headers.get("retry-after-ms"))) is not None:
        return int(milliseconds)
    if (after := headers.get("retry-after")) is None:
        return None
    if (seconds := _number(after)) is not None:
        return int(seconds * 1000)
    return _until_date(after, now_ms)


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text is not None else None
    except ValueError:
        return None
    return value if value is not None and 0 <= value < float("inf") else None


def _until_date(text: str, now_ms: int) -> int | None:
    try:
        delay = int(email.utils.parsedate_to_datetime(text).timestamp() * 1000) - now_ms
    except (ValueError, OverflowError):
        return None
    return delay if delay > 0 else None
