import json
import ssl

import anyio
import pytest
from fake_provider import FakeServer, Reply, ask, events_of
from fake_provider import adapter as make

from app.providers.anthropic_messages import Anthropic
from app.providers.base import ApiFailure
from app.providers.errors import failure_of, redact
from app.providers.openai_chat import OpenAIChat
from app.providers.openai_responses import OpenAIResponses


async def failure(server: FakeServer, adapter: type[OpenAIChat] = OpenAIChat) -> ApiFailure:
    with pytest.raises(ApiFailure) as failed:
        await events_of(make(server, adapter))
    return failed.value


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
    failed = await failure(server)
    assert (failed.message, failed.status, failed.body) == (message, status, body)


@pytest.mark.parametrize("adapter", [OpenAIChat, OpenAIResponses, Anthropic])
@pytest.mark.parametrize(
    ("status", "retryable"),
    [(400, False), (401, False), (404, False), (408, True), (409, True), (429, True), (500, True), (529, True)],
)
async def test_which_are_retryable(server: FakeServer, adapter: type[OpenAIChat], status: int, retryable: bool) -> None:
    refuses(server, status, "{}")
    failed = await failure(server, adapter)
    assert (failed.status, failed.retryable) == (status, retryable)
    assert len(server.received) == 1


async def test_the_headers_and_the_url(server: FakeServer) -> None:
    refuses(server, 429, '{"error":{"message":"slow down"}}', **{"Retry-After-Ms": "700"})
    failed = await failure(server)
    assert failed.headers is not None
    assert failed.headers["retry-after-ms"] == "700"
    assert failed.metadata == {"url": f"{server.url}/chat/completions"}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ('{"error":{"message":"quota"}}', "quota"),
        ("<html>a page</html>", "did not answer with an event stream: <html>a page</html>"),
    ],
)
async def test_a_success_that_is_no_stream(server: FakeServer, body: str, message: str) -> None:
    server.reply = Reply([body.encode()], 200, {"content-type": "text/html"})
    failed = await failure(server)
    assert failed.message.endswith(message)
    assert not failed.retryable
    assert failed.body == body


@pytest.mark.parametrize(
    ("error", "message", "status", "retryable"),
    [
        ({"error": {"message": "busy", "code": 502}}, "busy", 502, True),
        ({"error": {"message": "broken", "type": "server_error"}}, "broken", None, True),
        ({"error": {"message": "slow", "code": "rate_limit_exceeded"}}, "slow", None, True),
        ({"error": {"message": "too long", "code": 400}}, "too long", 400, False),
        ({"error": "plain"}, "plain", None, False),
        ({"object": "error", "message": "old form", "code": 400}, "old form", 400, False),
        ({"error": {"odd": 1}}, '{"error":{"odd":1}}', None, False),
        ({"error": {"message": "huge", "number": 10**30}}, "huge", None, False),
    ],
)
async def test_errors_within_the_stream(
    server: FakeServer, error: dict[str, object], message: str, status: int | None, retryable: bool
) -> None:
    server.plays(error)
    stream = make(server).stream(ask())
    with pytest.raises(ApiFailure) as failed:
        await anext(stream)
    assert (failed.value.message, failed.value.status, failed.value.retryable) == (message, status, retryable)
    assert json.loads(failed.value.body or "") == error


async def test_anthropic_overloaded_within_the_stream(server: FakeServer) -> None:
    server.plays({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    failed = await failure(server, Anthropic)
    assert (failed.message, failed.retryable) == ("Overloaded", True)


@pytest.mark.parametrize(
    ("event", "message", "retryable"),
    [
        ({"type": "response.failed", "response": {"error": {"code": "server_error", "message": "sorry"}}}, "sorry", True),
        ({"type": "response.failed", "response": {"error": {"code": "invalid_prompt", "message": "no"}}}, "no", False),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow"}, "slow", True),
        ({"type": "error", "error": {"type": "invalid_request_error", "message": "bad"}}, "bad", False),
    ],
)
async def test_responses_that_failed(server: FakeServer, event: dict[str, object], message: str, retryable: bool) -> None:
    server.plays(event)
    failed = await failure(server, OpenAIResponses)
    assert (failed.message, failed.retryable) == (message, retryable)


@pytest.mark.parametrize("error", [ssl.SSLError(1, "bad record"), anyio.EndOfStream()])
def test_what_tls_says_of_a_broken_connection_may_be_retried(error: Exception) -> None:
    failed = failure_of(error, "https://models.example/v1/chat/completions")
    assert isinstance(failed, ApiFailure) and failed.retryable and "models.example" in failed.message


def test_what_is_no_failure_of_the_provider_stays_what_it_is() -> None:
    assert failure_of(KeyError("index"), "https://models.example/v1") is None


def test_a_failure_tells_no_secret() -> None:
    said = "Wrong key sk-secret-1."
    failure = ApiFailure(said, status=401, headers={"x-echo": said, "date": "now"}, body=said * 2, metadata={"url": said})
    redact(failure, ["sk-secret-1"])
    assert failure.message == str(failure) == "Wrong key ********."
    assert "sk-secret-1" not in f"{failure.headers} {failure.body} {failure.metadata}"
    assert failure.headers is not None and failure.headers["date"] == "now"
