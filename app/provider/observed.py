"""Model calls that observers are told of."""

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from app.provider.base import ApiFailure, Ask, Finish, ModelRequest, StreamEvent, StreamStart
from app.provider.message_contents import add_output, contents_of
from app.provider.models.cost import tokens_and_cost
from app.telemetry.observer import Observer
from app.telemetry.records import ModelCallEnd, ModelCallRecord


async def observed(ask: Ask, observer: Observer, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
    record = _record(request, with_contents=observer.captures_contents)
    with observer.model_call(record):
        headers = {**request.headers, **record.headers}
        try:
            async with aclosing(ask(replace(request, headers=headers))) as events:
                async for event in events:
                    _note(record, event, request)
                    yield event
        except Exception as failure:
            record.end, record.error = ModelCallEnd.FAILED, _error_type(failure)
            raise
        if record.finish is None:
            record.end = ModelCallEnd.CUT_SHORT


def _record(request: ModelRequest, *, with_contents: bool) -> ModelCallRecord:
    parameters = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "top_k": request.top_k,
        "max_tokens": request.max_output_tokens,
    }
    given = {name: value for name, value in parameters.items() if value is not None}
    said = contents_of(request) if with_contents else None
    return ModelCallRecord(request.session_id, request.model.provider_id, request.model.id, given, said)


def _note(record: ModelCallRecord, event: StreamEvent, request: ModelRequest) -> None:
    if record.first_chunk is None and not isinstance(event, StreamStart):
        record.first_chunk = time.perf_counter()
    if isinstance(event, Finish):
        record.finish, record.end = event.reason, ModelCallEnd.ANSWERED
        record.tokens, record.cost = tokens_and_cost(event.usage, request.model.cost)
    elif record.contents is not None:
        add_output(record.contents, event)


def _error_type(failure: Exception) -> str:
    """The HTTP status, or what went wrong without one."""
    status = failure.status if isinstance(failure, ApiFailure) else None
    return str(status) if status else type(failure).__name__
