"""What a provider's refusals and errors become: which message, whether to try again, and which mean that all was too long."""

import json
import ssl
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from fake_provider import FakeServer, Reply, adapter, every_wire, failure_of

from app.providers import errors
from app.providers.base import ApiFailure, ContextOverflow
from app.providers.retry import retryable_reason

CORPUS: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("overflow_corpus.json").read_text())
"""What servers answer, by kind: a refusal with its status and body, or an event within a stream."""


def refuses(server: FakeServer, status: int, body: str, **headers: str) -> None:
    server.reply = Reply([body.encode()] if body else [], status, {"content-type": "application/json", **headers})


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (400, '{"error":{"message":"no such model","type":"invalid_request_error"}}', "no such model"),
        (400, '{"error":"bad thing"}', "Bad Request: bad thing"),
        (400, '{"message":"bad thing"}', "Bad Request: bad thing"),
        (400, '{"detail":"bad thing"}', 'Bad Request: {"detail":"bad thing"}'),
        (502, "<html>nginx</html>", "Bad Gateway: <html>nginx</html>"),
        (503, "", "Service Unavailable"),
    ],
)
async def test_the_message(server: FakeServer, status: int, body: str, message: str) -> None:
    refuses(server, status, body)
    failed = await failure_of(adapter(server))
    assert (failed.message, failed.status, failed.body) == (message, status, body)


@pytest.mark.parametrize("text", ["exceed", "context length overflow", "prompt (", "max context "])
def test_a_hostile_message_is_searched_in_the_time_of_reading(text: str) -> None:
    began = time.monotonic()
    errors.is_context_overflow(text * (64 * 1024 // len(text)), 400, "")
    assert time.monotonic() - began < 1


@every_wire
async def test_which_are_retryable(server: FakeServer, wire: str) -> None:
    for number, status in enumerate((400, 401, 404, 408, 409, 429, 500, 529), 1):
        refuses(server, status, "{}")
        failed = await failure_of(adapter(server, wire))
        assert (failed.status, failed.retryable) == (status, status > 404)
        assert len(server.received) == number, "the SDK asks once"


async def test_the_headers_and_the_url(server: FakeServer) -> None:
    refuses(server, 429, '{"error":{"message":"slow down"}}', **{"Retry-After-Ms": "700"})
    failed = await failure_of(adapter(server))
    assert failed.headers is not None and failed.headers["retry-after-ms"] == "700"
    assert failed.metadata == {"url": f"{server.url}/chat/completions"}


async def test_a_success_that_is_no_stream(server: FakeServer) -> None:
    page = "<html>a page</html>"
    told = {'{"error":{"message":"quota"}}': "quota", page: f"did not answer with an event stream: {page}"}
    for body, message in told.items():
        server.reply = Reply([body.encode()], 200, {"content-type": "text/html"})
        failed = await failure_of(adapter(server))
        assert failed.message.endswith(message) and not failed.retryable and failed.body == body


def failing(code: str, message: str) -> dict[str, object]:
    return {"type": "response.failed", "response": {"error": {"code": code, "message": message}}}


ERRORS: dict[str, list[tuple[Any, str, int | None, bool]]] = {
    "chat": [
        ({"error": {"message": "busy", "code": 502}}, "busy", 502, True),
        ({"error": {"message": "broken", "type": "server_error"}}, "broken", None, True),
        ({"error": {"message": "slow", "code": "rate_limit_exceeded"}}, "slow", None, True),
        ({"error": {"message": "too long", "code": 400}}, "too long", 400, False),
        ({"error": "plain"}, "plain", None, False),
        ({"object": "error", "message": "old form", "code": 400}, "old form", 400, False),
        ({"error": {"odd": 1}}, '{"error":{"odd":1}}', None, False),
        ({"error": {"message": "huge", "number": 10**30}}, "huge", None, False),
    ],
    "messages": [({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "Overloaded", None, True)],
    "responses": [
        (failing("server_error", "sorry"), "sorry", None, True),
        (failing("invalid_prompt", "no"), "no", None, False),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, "slow", None, True),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}}, "bad", None, False),
    ],
}


@every_wire
async def test_errors_within_the_stream(server: FakeServer, wire: str) -> None:
    for error, message, status, retryable in ERRORS[wire]:
        server.plays(error)
        failed = await failure_of(adapter(server, wire))
        assert (failed.message, failed.status, failed.retryable) == (message, status, retryable)
        assert wire != "chat" or json.loads(failed.body or "") == error


@pytest.mark.parametrize("error", [ssl.SSLError(1, "bad record"), anyio.EndOfStream()])
def test_what_tls_says_of_a_broken_connection_may_be_retried_and_nothing_else(error: Exception) -> None:
    failed = errors.failure_of(error, "https://models.example/v1/chat/completions")
    assert isinstance(failed, ApiFailure) and failed.retryable and "models.example" in failed.message
    assert errors.failure_of(KeyError("index"), "https://models.example/v1") is None


def test_a_failure_tells_no_secret() -> None:
    said = "Wrong key sk-secret-1."
    failure = ApiFailure(said, status=401, headers={"x-echo": said, "date": "now"}, body=said * 2, metadata={"url": said})
    errors.redact(failure, ["sk-secret-1"])
    assert failure.message == str(failure) == "Wrong key ********."
    assert "sk-secret-1" not in f"{failure.headers} {failure.body} {failure.metadata}"
    assert failure.headers is not None and failure.headers["date"] == "now"


def failure_in(answer: dict[str, Any]) -> ApiFailure:
    if "event" in answer:
        return errors.in_stream(answer["event"])
    body = answer["body"] if isinstance(answer["body"], str) else json.dumps(answer["body"])
    return errors.answered(answer["status"], {}, body, "http://provider/v1")


@pytest.mark.parametrize("answer", CORPUS["too long"], ids=lambda answer: answer["by"])
def test_a_conversation_that_is_too_long_is_known_and_not_sent_again(answer: dict[str, Any]) -> None:
    failure = failure_in(answer)
    assert isinstance(failure, ContextOverflow) and not failure.retryable and retryable_reason(failure) is None


@pytest.mark.parametrize("answer", CORPUS["something else"], ids=lambda answer: answer["by"])
def test_what_only_speaks_of_tokens_and_lengths_is_an_ordinary_failure(answer: dict[str, Any]) -> None:
    failure, status = failure_in(answer), answer.get("status")
    assert not isinstance(failure, ContextOverflow)
    assert failure.retryable or status is None or (status < 500 and status != 429)


@every_wire
async def test_it_is_told_within_a_stream(server: FakeServer, wire: str) -> None:
    body = {"type": "error", "error": {"message": "Your input exceeds the context window of this model."}}
    server.plays(body)
    failed = await failure_of(adapter(server, wire))
    assert isinstance(failed, ContextOverflow) and json.loads(failed.body or "")["error"] == body["error"]
    assert len(server.received) == 1
