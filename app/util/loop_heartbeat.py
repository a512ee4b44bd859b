"""What must be done every few seconds though the event loop stands still meanwhile: it is done in a thread of its own."""

import asyncio
import threading
import time
from collections.abc import Callable

HANGS_AFTER_SECONDS = 60.0
"""A loop that has stood still for longer is given up on, as a dead server is: what it holds must not be held for good."""


class LoopHeartbeat:
    """`beat` is called in the thread, and `on_loop` on the loop each time when that gets to it. Neither raises anything."""

    def __init__(
        self,
        name: str,
        seconds: float,
        beat: Callable[[], None],
        on_loop: Callable[[], None] = lambda: None,
        hangs_after: float = HANGS_AFTER_SECONDS,
    ) -> None:
        self._seconds = seconds
        self._beat = beat
        self._on_loop = on_loop
        self._hangs_after = hangs_after
        self._ends = threading.Event()
        self._seen = time.monotonic()
        """When the loop last ran."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Waits for a beat that is under way."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ends.wait(self._seconds):
            try:
                self._loop.call_soon_threadsafe(self._see)
            except RuntimeError:  # the loop is closed
                return
            if time.monotonic() - self._seen < self._hangs_after:
                self._beat()

    def _see(self) -> None:
        self._seen = time.monotonic()
        self._on_loop()
