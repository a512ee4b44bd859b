import json
from pathlib import Path
from typing import Any

import pytest
from fake_provider import FakeServer, Reply, events_of

from app.provider.anthropic_messages import Anthropic
from app.provider.base import ApiFailure, ContextOverflow
from app.provider.errors import answered, in_stream
from app.provider.openai_chat import OpenAIChat
from app.provider.openai_responses import OpenAIResponses
from app.turn.retry import retryable_reason

CORPUS: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name("overflow_corpus.json").read_text())
"""What servers answer, by kind: a refusal with its status and body, or an event within a stream."""


def of_kind(kind: str) -> Any:
    return pytest.mark.parametrize("answer", [pytest.param(answer, id=answer["by"]) for answer in CORPUS[kind]])


def failure_of(answer: dict[str, Any]) -> ApiFailure:
    if "event" in answer:
        return in_stream(answer["event"])
    body = answer["body"] if isinstance(answer["body"], str) else json.dumps(answer["body"])
    return answered(answer["status"], {}, body, "http://provider/v1")


@of_kind("too long")
def test_a_conversation_that_is_too_long_is_known_and_not_sent_again(answer: dict[str, Any]) -> None:
    failure = failure_of(answer)
    assert isinstance(failure, ContextOverflow)
    assert not failure.retryable
    assert retryable_reason(failure) is None


@of_kind("something else")
def test_what_only_speaks_of_tokens_and_lengths_is_an_ordinary_failure(answer: dict[str, Any]) -> None:
    failure = failure_of(answer)
    assert not isinstance(failure, ContextOverflow)
    status = answer.get("status")
    assert failure.retryable or status is None or (status < 500 and status != 429)


@pytest.mark.parametrize("adapter", [OpenAIChat, OpenAIResponses, Anthropic])
@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": "prompt is too long: 9 tokens > 8 maximum", "type": "invalid_request_error"}}),
        (200, {"type": "error", "error": {"message": "Your input exceeds the context window of this model."}}),
    ],
    ids=["refused", "within the stream"],
)
async def test_every_adapter_tells_it(server: FakeServer, adapter: type[OpenAIChat], status: int, body: dict[str, Any]) -> None:
    if status == 200:
        server.plays(body)
    else:
        server.reply = Reply([json.dumps(body).encode()], status, {"content-type": "application/json"})
    with pytest.raises(ContextOverflow) as failed:
        await events_of(adapter("fake", api_key="key", base_url=server.url, headers={}, options={}))
    assert json.loads(failed.value.body or "")["error"] == body["error"]
    assert len(server.received) == 1
