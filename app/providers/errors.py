"""Translates failures of providers to ApiFailure: HTTP errors, broken connections and error events in a stream."""

import errno
import json
import re
import ssl
from collections.abc import Iterable, Iterator, Mapping
from http.client import responses
from typing import Any
from urllib.parse import urlsplit

from app.providers.base import AnswerTooLarge, ApiFailure, ContextOverflow, ProviderFailure
from app.util.bounds import MAX_ERROR_BYTES, AnswerPassedLimit, parse_json
from app.util.secrets import redacted

_RETRYABLE_STATUS = {408, 409, 429}
_TRANSIENT_WORDS = (
    "overloaded",
    "rate_limit",
    "too_many_requests",
    "exhausted",
    "unavailable",
    "server_error",
    "internal",
    "api_error",
    "timeout",
    "no_kv_space",
)
_MESSAGE_LIMIT = 2000


def is_retryable(status: int) -> bool:
    return status in _RETRYABLE_STATUS or status >= 500


def failure_of(error: Exception, url: str) -> ProviderFailure | None:
    """Translates what an SDK raises; None if it is not a failure of the provider."""
    import anyio
    import httpx2

    causes = list(_causes(error))
    for cause in causes:
        match cause:
            case ProviderFailure():
                return cause
            case AnswerPassedLimit():
                return AnswerTooLarge(f"{urlsplit(url).netloc} sent too much. {cause}", metadata={"url": url})
            case json.JSONDecodeError():
                return unreadable_event(cause.doc.encode(errors="replace"), url)
            case UnicodeDecodeError():
                return unreadable_event(cause.object, url)
            case OverflowError():  # a port that there is not
                return invalid_address(url)
    response, event = getattr(error, "response", None), getattr(error, "body", None)
    if isinstance(response, httpx2.Response):
        body = response.content.decode(errors="replace")
        return answered(response.status_code, response.headers, body, str(response.url))
    if event is not None:
        return in_stream({"error": event})
    if any(isinstance(cause, OSError) and cause.errno == errno.ECONNRESET for cause in causes):
        metadata = {"url": url, "code": "ECONNRESET", "syscall": "read", "message": str(error)}
        return ApiFailure("Connection reset by server", retryable=True, metadata=metadata)
    # httpx2 makes errors of its own of most of the last two, which come from TLS.
    broken = (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError, anyio.EndOfStream)
    return next((_transport(cause, url) for cause in causes if isinstance(cause, broken)), None)


def answered(status: int, headers: Mapping[str, str], body: str, url: str) -> ApiFailure:
    """An HTTP answer with an error status."""
    return refused(
        _message(status, body),
        status=status,
        retryable=is_retryable(status),
        headers={name.lower(): value for name, value in headers.items()},
        body=body,
        metadata={"url": url},
    )


def refused(
    message: str,
    *,
    status: int | None,
    retryable: bool,
    body: str | None,
    headers: dict[str, str] | None = None,
    metadata: dict[str, str] | None = None,
) -> ApiFailure:
    """The failure for an error of the provider."""
    if is_context_overflow(message, status, body):
        return ContextOverflow(message, status=status, headers=headers, body=body, metadata=metadata)
    return ApiFailure(message, status=status, retryable=retryable, headers=headers, body=body, metadata=metadata)


def no_stream(status: int, headers: Mapping[str, str], body: str, url: str) -> ApiFailure:
    """A successful answer whose body is not an event stream: an error object, or another page at that address."""
    message = _error_message(_parsed(body))
    host = urlsplit(url).netloc
    failure = answered(status, headers, body, url)
    failure.message = _limited(message or f"{host} did not answer with an event stream: {body.strip()}")
    return failure


def in_stream(payload: Mapping[str, Any]) -> ApiFailure:
    """An error event in a stream. `payload` is the event."""
    error = payload.get("error") or payload
    facts = error if isinstance(error, dict) else {}
    numbers = (facts.get(key) for key in ("code", "status"))
    status = next((number for number in numbers if isinstance(number, int) and 400 <= number < 600), None)
    kinds = " ".join(str(facts.get(key) or "") for key in ("type", "code", "status")).lower()
    transient = any(word in kinds for word in _TRANSIENT_WORDS)
    body = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))[:MAX_ERROR_BYTES]
    message = _limited(_error_message(payload) or body)
    return refused(message, status=status, retryable=transient or (status is not None and is_retryable(status)), body=body)


def unreadable_event(data: bytes, url: str, problem: str = "is not a JSON object") -> ApiFailure:
    text = data[:MAX_ERROR_BYTES].decode(errors="replace")
    return ApiFailure(_limited(f"An event of the stream {problem}: {text}"), body=text, metadata={"url": url})


def _message(status: int, body: str) -> str:
    """`error.message` of the body; without one, the reason phrase and the body's text."""
    parsed = _parsed(body)
    error = parsed.get("error") if isinstance(parsed, dict) else None
    if isinstance(error, dict) and (message := _text(error.get("message"))):
        return _limited(message)
    phrase = responses.get(status, f"HTTP status {status}")
    detail = _error_message(parsed) or _limited(body.strip())
    return f"{phrase}: {detail}" if detail else phrase


def _error_message(parsed: Any) -> str | None:
    if not isinstance(parsed, dict):
        return None
    error = parsed.get("error")
    inner = error.get("message") if isinstance(error, dict) else error
    return _text(inner) or _text(parsed.get("message"))


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


def _parsed(body: str) -> Any:
    try:
        return parse_json(body)
    except ValueError:
        return None


def _limited(text: str) -> str:
    return text if len(text) <= _MESSAGE_LIMIT else text[:_MESSAGE_LIMIT] + "…"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        first = error.exceptions[0] if isinstance(error, BaseExceptionGroup) else None
        error = error.__cause__ or error.__context__ or first


def _transport(error: BaseException, url: str) -> ApiFailure:
    import anyio
    import httpx2

    host = urlsplit(url).netloc
    ours = (httpx2.InvalidURL, httpx2.UnsupportedProtocol, httpx2.LocalProtocolError, httpx2.TooManyRedirects)
    match error:
        case httpx2.ProxyError():
            message = f"The proxy refuses a connection to {host}: {error}"
        case httpx2.InvalidURL() | httpx2.UnsupportedProtocol():
            message = invalid_address(url).message
        case httpx2.ConnectTimeout():
            message = f"{host} did not accept a connection in time"
        case httpx2.TimeoutException():
            message = f"{host} was silent for too long"
        case httpx2.ConnectError():
            by_system = [cause for cause in _causes(error) if isinstance(cause, OSError)]  # or by TLS, whose errors are such too
            reason = by_system[-1] if by_system else error
            message = f"Cannot connect to {host}: {reason}"
        case httpx2.NetworkError() | httpx2.RemoteProtocolError() | anyio.EndOfStream():
            message = f"{host} broke the connection off before the answer was complete"
        case _:
            message = f"The request to {host} failed: {str(error) or type(error).__name__}"
    metadata = {"url": url, "code": type(error).__name__}
    status = str(error).partition(" ")[0]  # the status of a proxy
    is_refused = isinstance(error, httpx2.ProxyError) and not (status.isdecimal() and is_retryable(int(status)))
    return ApiFailure(message, retryable=not (is_refused or isinstance(error, ours)), metadata=metadata)


def invalid_address(url: str) -> ApiFailure:
    """Does not name a proxy's address, which may have a password."""
    return ApiFailure(f"The address {url}, or that of the proxy, is not valid", metadata={"url": url, "code": "InvalidURL"})


_TOO_LARGE = 413
_RATE_LIMITED = 429
_MAX_READ = 8_000
"""Characters of a body that are searched: the error is at its start, and some providers append the request."""

_WINDOW = r"(?:context|prompt)[ _](?:length|window|size|limit)"
_BEYOND = r"(?:exceed\w{0,9}|longer than|greater than|fit into|too large for|maximum|max)"
_TOO_LONG = re.compile(
    "|".join(
        (
            # codes and types
            r"context_?(?:length|window|size)_?exceeded",
            r"exceed_context_size",
            r"max_prompt_tokens_exceeded",
            # the window is exceeded
            rf"{_BEYOND}\b[^.`]{{0,60}}\b{_WINDOW}",
            rf"{_WINDOW}\b[^.]{{0,40}}\b(?:exceed|overflow|is only|of only)",
            # the prompt is too long
            r"(?:prompt|input|request|conversation)(?: \([^)]{0,200}\))? (?:is |was )?too (?:long|large)",
            r"content': string too long",
            r"input tokens? (?:count )?(?:\(\d+\) )?exceeds? the (?:maximum|configured limit)",
            r"token count of \d+ exceeds the limit",
            r"exceeded model token limit",
            r"(?:prompt|input length \d+) exceeds (?:the )?max(?:imum)? length",
            r"range of input length should be",
            r"longer than the maximum model length",
            r"`inputs` tokens \+ `max_new_tokens` must be",
            r"tokens in the prompt cannot exceed",
            r"reduce the length of the (?:messages|input|prompt)",
            r"max_tokens must be at least 1, got -\d",
            r"payload size exceeds the limit",
        )
    ),
    re.IGNORECASE,
)
_TOO_OFTEN = re.compile(r"rate.?limit|throttl|quota|per[ _]min|per[ _]day", re.IGNORECASE)


def is_context_overflow(message: str, status: int | None, body: str | None) -> bool:
    """Status 413 counts: a shorter conversation helps against too many bytes too. A rate limit never counts, even if it mentions
    tokens."""
    if status == _TOO_LARGE:
        return True
    text = f"{message}\n{(body or '')[:_MAX_READ]}"
    return status != _RATE_LIMITED and _TOO_LONG.search(text) is not None and _TOO_OFTEN.search(text) is None


def redact(failure: ProviderFailure, secrets: Iterable[str]) -> None:
    """Removes the secrets: a provider or a proxy may quote the request in its error."""
    hidden = list(secrets)
    failure.message = redacted(failure.message, hidden)
    if isinstance(failure, ApiFailure):
        failure.body = failure.body and redacted(failure.body, hidden)
        failure.headers = _without_secrets(failure.headers, hidden)
        failure.metadata = _without_secrets(failure.metadata, hidden)
    failure.args = (failure.message,)


def _without_secrets(texts: dict[str, str] | None, secrets: list[str]) -> dict[str, str] | None:
    return texts and {name: redacted(text, secrets) for name, text in texts.items()}
