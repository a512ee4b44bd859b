"""What is observed of this server, as the settings ask for it."""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from app.telemetry.observer import NOBODY, Observer, Observers
from app.telemetry.otel_settings import wants_contents, wants_traces
from app.util.tasks import TaskSet

if TYPE_CHECKING:
    from app.telemetry.metrics import Metrics
    from app.telemetry.traces import Traces

log = logging.getLogger(__name__)


class Telemetry:
    def __init__(self, metrics: "Metrics | None", traces: "Traces | None") -> None:
        self.metrics = metrics
        self.traces = traces
        self.observer = _observer(metrics, traces)
        self._watching = TaskSet()

    def start(self) -> None:
        if self.metrics is not None:
            self._watching.start(self.metrics.watch_loop(), "event loop lag")

    async def stop(self) -> None:
        await self._watching.cancel()
        if self.traces is not None:
            await asyncio.to_thread(self.traces.stop)


def open_telemetry(metrics: bool, environ: Mapping[str, str]) -> Telemetry:
    return Telemetry(_metrics() if metrics else None, _traces(environ) if wants_traces(environ) else None)


def _observer(metrics: Observer | None, traces: Observer | None) -> Observer:
    """One of them is told without a detour."""
    if metrics is not None and traces is not None:
        return Observers(metrics, traces)
    return metrics or traces or NOBODY


def _metrics() -> "Metrics":
    from app.telemetry.metrics import Metrics

    return Metrics()


def _traces(environ: Mapping[str, str]) -> "Traces | None":
    """None without the SDK: the variables may be meant for all programs of a machine."""
    try:
        from app.telemetry.traces import Traces
    except ImportError as error:
        log.warning("no traces, though OTEL_… variables ask for them: pip install 'opensession[otel]' (%s)", error)
        return None
    return Traces(environ, captures_contents=wants_contents(environ))
