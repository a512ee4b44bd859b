"""The current trace, in the headers of a request to another program. Importing this imports OpenTelemetry's API."""

from collections.abc import MutableMapping

from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()


def put_trace(headers: MutableMapping[str, str]) -> None:
    """Nothing is put where nothing is traced."""
    _PROPAGATOR.inject(headers)
