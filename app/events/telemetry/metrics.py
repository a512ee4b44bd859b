"""The figures of one server, for Prometheus. docs/observability.md has the list. Importing this imports prometheus-client."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import choose_encoder

from app import __version__
from app.events.telemetry.observer import ModelCallRecord, Observer, ToolCallRecord, TurnEnd, TurnRecord
from app.util.tasks import FailureLog

OTHER = "other"
LONGEST = 200


class BoundedLabels:
    """The first `most` combinations are kept as they are; any other counts as `other`, as does one of more than LONGEST
    characters."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[tuple[str, ...]] = set()

    def bounded(self, *values: str) -> tuple[str, ...]:
        if values in self._known:
            return values
        if len(self._known) >= self._most or sum(map(len, values)) > LONGEST:
            return (OTHER,) * len(values)
        self._known.add(values)
        return values


log = logging.getLogger(__name__)

MAX_MODELS = 100
MAX_TOOLS = 200
LAG_SECONDS = 1.0
"""The time between two looks at how late the event loop is."""

TURN_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
FIRST_TOKEN_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60)
WAIT_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 14400, 86400)
COMMIT_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
BATCH_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 500)
LAG_BUCKETS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)

Reading = Callable[[], Awaitable[float]]

disable_created_metrics()  # type: ignore[no-untyped-call]  # they would double the series, and nobody asks for them


class Metrics(Observer):
    watches_models = True

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._models, self._tools = BoundedLabels(MAX_MODELS), BoundedLabels(MAX_TOOLS)
        self._readings: list[tuple[Gauge, Reading, FailureLog]] = []
        ProcessCollector(registry=self._registry)
        self._gauge("info", "Its version", "version").labels(__version__).set(1)
        self._define_turns()
        self._define_model_calls()
        self._define_storage_and_clients()

    def _define_turns(self) -> None:
        self.running_turns = 0
        self._gauge("turns_running", "Turns that run").set_function(lambda: self.running_turns)
        self._turns = self._counter("turns", "Turns that ended", "outcome")
        self._turn_seconds = self._histogram("turn_seconds", "Time of a turn", TURN_BUCKETS)
        self._tool_calls = self._counter("tool_calls", "Tool calls that ended", "tool", "outcome")
        self._waits = self._gauge("waits", "Permission requests and questions that wait for the user", "kind")
        self._wait_seconds = self._histogram("wait_seconds", "Time that they waited", WAIT_BUCKETS, "kind")
        for end in TurnEnd:
            self._turns.labels(end)
        for kind in ("permission", "question"):
            self._waits.labels(kind)

    def _define_model_calls(self) -> None:
        model = ("provider", "model")
        self._model_calls = self._counter("model_calls", "Requests to models that ended", *model, "outcome")
        self._first_token = self._histogram(
            "first_token_seconds", "From a request to a model to the first of its answer", FIRST_TOKEN_BUCKETS, *model
        )
        self._tokens = self._counter("tokens", "Tokens, as providers count them", *model, "kind")
        self._cost = self._counter("cost_dollars", "What they cost", *model)

    def _define_storage_and_clients(self) -> None:
        self._commit_seconds = self._histogram("commit_seconds", "Time of a commit", COMMIT_BUCKETS)
        self._commit_changes = self._histogram("commit_changes", "Changes that a commit stores", BATCH_BUCKETS)
        self.requests = self._counter("http_requests", "HTTP requests that were answered", "method", "route", "status")
        self.sse_clients = self._gauge("sse_clients", "Event streams that are open")
        self.sse_bytes = self._counter("sse_bytes", "Bytes sent on event streams")
        self._cut_off = self._counter("sse_cut_off", "Event streams that were ended because their client read too slowly")
        self._lag = self._histogram("event_loop_lag_seconds", "How late the event loop is", LAG_BUCKETS)

    # Observing.

    @contextmanager
    def turn(self, record: TurnRecord) -> Iterator[None]:
        self.running_turns += 1
        try:
            yield
        finally:
            self.running_turns -= 1
            self._turns.labels(record.ended()).inc()
            self._turn_seconds.observe(time.perf_counter() - record.began)

    @contextmanager
    def model_call(self, record: ModelCallRecord) -> Iterator[None]:
        try:
            yield
        finally:
            self._count_model_call(record, self._models.bounded(record.provider, record.model))

    def _count_model_call(self, record: ModelCallRecord, model: tuple[str, ...]) -> None:
        self._model_calls.labels(*model, record.end).inc()
        if record.first_chunk is not None:
            self._first_token.labels(*model).observe(record.first_chunk - record.began)
        tokens = record.tokens
        counts = (
            ("input", tokens.input),
            ("output", tokens.output),
            ("reasoning", tokens.reasoning),
            ("cache_read", tokens.cache.read),
            ("cache_write", tokens.cache.write),
        )
        for kind, count in counts:
            if count > 0:
                self._tokens.labels(*model, kind).inc(count)
        if record.cost > 0:
            self._cost.labels(*model).inc(record.cost)

    @contextmanager
    def tool_call(self, record: ToolCallRecord) -> Iterator[None]:
        try:
            yield
        finally:
            self._tool_calls.labels(*self._tools.bounded(record.tool), record.end).inc()

    @contextmanager
    def wait(self, kind: str) -> Iterator[None]:
        waits, began = self._waits.labels(kind), time.perf_counter()
        waits.inc()
        try:
            yield
        finally:
            waits.dec()
            self._wait_seconds.labels(kind).observe(time.perf_counter() - began)

    def committed(self, seconds: float, changes: int) -> None:
        self._commit_seconds.observe(seconds)
        self._commit_changes.observe(changes)

    def cut_off(self) -> None:
        self._cut_off.inc()

    async def watch_loop(self) -> None:
        """Runs until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_SECONDS
            await asyncio.sleep(LAG_SECONDS)
            self._lag.observe(max(loop.time() - due, 0))

    # Reading.

    def read(self, name: str, text: str, reading: Reading) -> None:
        """A gauge that is read when the metrics are fetched: `opensession_<name>`. It is NaN when the reading fails."""
        self._readings.append((self._gauge(name, text), reading, FailureLog(log, f"reading the metric {name}")))

    async def page(self, accept: str) -> tuple[bytes, str]:
        """All figures in the format that the scraper accepts, and its content type."""
        for gauge, reading, failures in self._readings:
            try:
                gauge.set(await reading())
                failures.worked()
            except Exception as error:  # noqa: BLE001  the other figures are wanted all the more
                failures.failed(error)
                gauge.set(math.nan)
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"opensession_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"opensession_{name}", text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"opensession_{name}", text, labels, buckets=buckets, registry=self._registry)
