"""What is observed of this server, as the settings ask for it."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from app.telemetry.observer import NOBODY, Observer

if TYPE_CHECKING:
    from app.telemetry.metrics import Metrics


class Telemetry:
    def __init__(self, observer: Observer, metrics: "Metrics | None") -> None:
        self.observer = observer
        self.metrics = metrics
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self.metrics is not None:
            self._watching = asyncio.create_task(self.metrics.watch_loop(), name="event loop lag")

    async def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching


def open_telemetry(metrics: bool, environ: Mapping[str, str]) -> Telemetry:
    counted = _metrics() if metrics else None
    return Telemetry(counted or NOBODY, counted)


def _metrics() -> "Metrics":
    from app.telemetry.metrics import Metrics

    return Metrics()
