"""Traces for OpenTelemetry, by its conventions for generative AI: a span for each turn, model call and tool call.

Spans nest by the context that asyncio copies into new tasks: a subagent's turn is within the call that started it, a turn within
the request that prompted it. Importing this imports the SDK.
"""

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import orjson
from opentelemetry import trace
from opentelemetry.context import attach, detach
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from app import __version__
from app.events.telemetry.observer import (
    ModelCallEnd,
    ModelCallRecord,
    Observer,
    ToolCallEnd,
    ToolCallRecord,
    TurnEnd,
    TurnRecord,
)

log = logging.getLogger(__name__)

FLUSH_SECONDS = 3.0
"""How long the server's end waits for the export of the last spans."""

_PROVIDER_NAMES = {
    "amazon-bedrock": "aws.bedrock",
    "azure": "azure.ai.openai",
    "google": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "xai": "x_ai",
}
"""Providers that have another name in the conventions than in the catalogue."""

_PROPAGATOR = TraceContextTextMapPropagator()
"""Sends the trace alone: baggage may have what providers must not know."""

Attributes = dict[str, Any]


class Traces(Observer):
    watches_models = True

    def __init__(self, *, captures_contents: bool) -> None:
        self.captures_contents = captures_contents
        own = Resource.create({SERVICE_NAME: "opensession", SERVICE_VERSION: __version__})
        named = own.merge(OTELResourceDetector().detect())  # again: what the variables name overrides it
        self._provider = TracerProvider(resource=named, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("opensession", __version__)

    @contextmanager
    def turn(self, record: TurnRecord) -> Iterator[None]:
        start = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": record.session_id}
        with self._span("invoke_agent", start) as span:
            try:
                yield
            finally:
                _describe_turn(span, record)

    @contextmanager
    def model_call(self, record: ModelCallRecord) -> Iterator[None]:
        """Does not make the span the current one: the stream is read in several tasks, and its tool calls belong to the turn."""
        span = self._tracer.start_span(f"chat {record.model}", kind=SpanKind.CLIENT, attributes=_model_call_start(record))
        _PROPAGATOR.inject(record.headers, trace.set_span_in_context(span))
        try:
            yield
        finally:
            _describe_model_call(span, record)
            span.end()

    @contextmanager
    def tool_call(self, record: ToolCallRecord) -> Iterator[None]:
        start = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": record.tool,
            "gen_ai.tool.call.id": record.call_id,
            "gen_ai.tool.type": "function",
            "gen_ai.conversation.id": record.session_id,
        }
        with self._span(f"execute_tool {record.tool}", start) as span:
            try:
                yield
            finally:
                if record.end is not ToolCallEnd.COMPLETED:
                    _fail(span, record.error or record.end)
                if self.captures_contents:
                    span.set_attribute("gen_ai.tool.call.arguments", _json(record.arguments))
                    span.set_attribute("gen_ai.tool.call.result", record.result)

    @contextmanager
    def request(self, headers: Mapping[str, str]) -> Iterator[None]:
        """What happens within belongs to the trace that the request's `traceparent` names."""
        if "traceparent" not in headers:
            yield
            return
        token = attach(_PROPAGATOR.extract(headers))
        try:
            yield
        finally:
            detach(token)

    def stop(self) -> None:
        """Exports what is left. Waits at most FLUSH_SECONDS for a collector that does not answer."""
        flushing = threading.Thread(target=self._provider.shutdown, name="flush traces", daemon=True)
        flushing.start()
        flushing.join(FLUSH_SECONDS)
        if flushing.is_alive():
            log.warning("the last traces could not be exported within %g s", FLUSH_SECONDS)

    @contextmanager
    def _span(self, name: str, attributes: Attributes) -> Iterator[Span]:
        """Makes it the current span. Exceptions are not recorded as they are, because they may quote a call's contents."""
        with self._tracer.start_as_current_span(
            name, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            yield span


def current_ids() -> dict[str, str]:
    """The ids of the current span, as log lines name them."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}


def _describe_turn(span: Span, record: TurnRecord) -> None:
    if record.agent:
        span.update_name(f"invoke_agent {record.agent}")
        span.set_attributes(
            {
                "gen_ai.agent.name": record.agent,
                "gen_ai.provider.name": _provider_name(record.provider),
                "gen_ai.request.model": record.model,
            }
        )
    end = record.ended()
    span.set_attribute("opensession.turn.outcome", end)
    if end is TurnEnd.FAILED:
        _fail(span, record.failure.name if record.failure else None)
    elif end is not TurnEnd.ANSWERED:
        _fail(span, end)


def _model_call_start(record: ModelCallRecord) -> Attributes:
    parameters = {f"gen_ai.request.{name}": value for name, value in record.parameters.items()}
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _provider_name(record.provider),
        "gen_ai.request.model": record.model,
        "gen_ai.request.stream": True,
        "gen_ai.conversation.id": record.session_id,
        **parameters,
    }


def _describe_model_call(span: Span, record: ModelCallRecord) -> None:
    if record.first_chunk is not None:
        span.set_attribute("gen_ai.response.time_to_first_chunk", record.first_chunk - record.began)
    if record.finish is not None:
        span.set_attribute("gen_ai.response.finish_reasons", [record.finish])
        span.set_attributes(_usage(record))
    if record.contents is not None:
        contents = record.contents
        span.set_attribute("gen_ai.system_instructions", _json(contents.system))
        span.set_attribute("gen_ai.input.messages", _json(contents.inputs))
        answer = {"role": "assistant", "parts": contents.outputs, "finish_reason": record.finish or "unknown"}
        span.set_attribute("gen_ai.output.messages", _json([answer]))
    if record.end is not ModelCallEnd.ANSWERED:
        _fail(span, record.error or record.end)


def _usage(record: ModelCallRecord) -> Attributes:
    """Input includes cached tokens, as the conventions have it."""
    tokens = record.tokens
    usage = {
        "input_tokens": tokens.input + tokens.cache.read + tokens.cache.write,
        "output_tokens": tokens.output,
        "reasoning.output_tokens": tokens.reasoning,
        "cache_read.input_tokens": tokens.cache.read,
        "cache_creation.input_tokens": tokens.cache.write,
    }
    return {f"gen_ai.usage.{name}": count for name, count in usage.items()}


def _fail(span: Span, error_type: str | None) -> None:
    span.set_attribute("error.type", error_type or "_OTHER")
    span.set_status(Status(StatusCode.ERROR))


def _provider_name(provider: str) -> str:
    return _PROVIDER_NAMES.get(provider, provider)


def _json(value: Any) -> str:
    return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
