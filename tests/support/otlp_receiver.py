"""A collector on loopback: it takes traces by OTLP over HTTP and reads them with the official protobufs.

with otlp_receiver() as collector:
    …                                   a server with OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, to its end
collector.tree()                        {"invoke_agent build": {"chat big": {}, "execute_tool bash": {}}}
"""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from loopback import QuietHandler, on_loopback
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status


@dataclass
class OtlpReceiver:
    url: str
    bodies: list[bytes] = field(default_factory=list)
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)

    @property
    def spans(self) -> list[Span]:
        """In the order that they began in."""
        found = [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]
        return sorted(found, key=lambda span: span.start_time_unix_nano)

    def span(self, name: str, position: int = 0) -> Span:
        return [span for span in self.spans if span.name == name][position]

    def resource(self) -> dict[str, Any]:
        return {each.key: plain(each.value) for each in self.requests[0].resource_spans[0].resource.attributes}

    def tree(self, parent: bytes = b"") -> list[Any]:
        """The names of the spans below one, each with those below it."""
        return [(span.name, self.tree(span.span_id)) for span in self.spans if span.parent_span_id == parent]


def attributes(span: Span) -> dict[str, Any]:
    return {each.key: plain(each.value) for each in span.attributes}


def failed(span: Span) -> bool:
    return span.status.code == Status.STATUS_CODE_ERROR


def plain(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return [plain(each) for each in value.array_value.values] if kind == "array_value" else getattr(value, str(kind))


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    class Handler(QuietHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces" and self.headers["content-type"] == "application/x-protobuf"
            sent = self.body()
            body = gzip.decompress(sent) if self.headers.get("content-encoding") == "gzip" else sent
            received.bodies.append(body)
            received.requests.append(ExportTraceServiceRequest.FromString(body))
            self.reply(ExportTraceServiceResponse().SerializeToString(), "application/x-protobuf")

    with on_loopback(Handler) as port:
        received = OtlpReceiver(f"http://127.0.0.1:{port}")
        yield received
