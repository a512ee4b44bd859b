import json
from pathlib import Path
from typing import Any

import pytest
from fake_provider import FakeServer, adapter, every_adapter
from fake_provider import failure_of as failed_of

from app.providers.base import ApiFailure, ContextOverflow
from app.providers.errors import answered, in_stream
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


@every_adapter
async def test_every_adapter_tells_it_within_a_stream(server: FakeServer, kind: Any) -> None:
    body = {"type": "error", "error": {"message": "Your input exceeds the context window of this model."}}
    server.plays(body)
    failed = await failed_of(adapter(server, kind))
    assert isinstance(failed, ContextOverflow) and json.loads(failed.body or "")["error"] == body["error"]
    assert len(server.received) == 1
