"""The observers of this server, by the settings."""

import asyncio
import logging
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from app.events.telemetry.observer import NOBODY, Observer, Observers
from app.util.tasks import TaskSet

if TYPE_CHECKING:
    from app.events.telemetry.metrics import Metrics
    from app.events.telemetry.traces import Traces

log = logging.getLogger(__name__)

_CAPTURING = frozenset({"true", "span_only", "span_and_event"})


# The standard variables `OTEL_…`. https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/


def wants_traces(environ: Mapping[str, str]) -> bool:
    """Whether a collector or an exporter is named. The SDK would otherwise try localhost."""
    exporter = environ.get("OTEL_TRACES_EXPORTER", "").strip().lower()
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or exporter == "none":
        return False
    endpoints = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return exporter == "otlp" or (exporter == "" and any(environ.get(name) for name in endpoints))


def require_http(environ: Mapping[str, str]) -> None:
    """Raises ValueError for another protocol: its collector would not understand what is sent to it."""
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    name = next((name for name in names if environ.get(name)), None)
    if name and not environ[name].strip().lower().startswith("http/"):
        raise ValueError(f"{name} is {environ[name]}, and traces are sent by http/protobuf alone")


def put_trace(headers: MutableMapping[str, str]) -> None:
    """Adds the current trace to the headers of a request to another program; nothing without traces."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    TraceContextTextMapPropagator().inject(headers)


class Telemetry:
    def __init__(self, metrics: "Metrics | None", traces: "Traces | None") -> None:
        self.metrics = metrics
        self.traces = traces
        observers: list[Observer] = [each for each in (metrics, traces) if each is not None]
        self.observer = Observers(*observers) if observers else NOBODY
        self._watching = TaskSet()

    def start(self) -> None:
        if self.metrics is not None:
            self._watching.start(self.metrics.watch_loop(), "event loop lag")

    async def stop(self) -> None:
        await self._watching.cancel()
        if self.traces is not None:
            await asyncio.to_thread(self.traces.stop)


def open_telemetry(metrics: bool, environ: Mapping[str, str]) -> Telemetry:
    """Imports only what the settings ask for."""
    counting = None
    if metrics:
        from app.events.telemetry.metrics import Metrics

        counting = Metrics()
    return Telemetry(counting, _traces(environ) if wants_traces(environ) else None)


def _traces(environ: Mapping[str, str]) -> "Traces | None":
    """None without the SDK, or with a variable that it refuses: the variables may be meant for all programs of a machine."""
    try:
        require_http(environ)
        from app.events.telemetry.traces import Traces

        captured = environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "").strip().lower()
        return Traces(captures_contents=captured in _CAPTURING)
    except ImportError as error:
        log.warning("no traces, though OTEL_… variables ask for them: pip install 'opensession[otel]' (%s)", error)
    except ValueError as error:
        log.warning("no traces: an OTEL_… variable is wrong (%s)", error)
    return None
