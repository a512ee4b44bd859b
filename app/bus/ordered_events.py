"""The journal's events in their order, each once and none left out, wherever this server hears of them first.

Sequences have no gaps and are committed in their order. An event is delivered when all before it are; what is missing was
committed by another server, and comes from it or, a moment later, from the journal.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from app.bus.base import Event
from app.util.failure_log import FailureLog

log = logging.getLogger(__name__)

GAP_SECONDS = 0.01
"""How long the missing events may take to come from the server that committed them, before the journal is read."""
MOST_WAITING = 1_000
"""Events that may wait for a gap to close. More are read from the journal again."""


class OrderedEvents:
    def __init__(
        self,
        deliver: Callable[[Event], None],
        read_after: Callable[[int], Awaitable[Sequence[Event]]],
        lost: Callable[[], None],
    ) -> None:
        """`read_after` returns events of the journal after a sequence, none at its head. `lost` is called when the journal no
        longer has what is missing."""
        self._deliver = deliver
        self._read_after = read_after
        self._lost = lost
        self._waiting: dict[int, Event] = {}
        self._gap = asyncio.Event()
        self.cursor = 0
        self.offered = 0
        """The newest sequence that this server has heard of."""
        self.poll_seconds = 0.25
        """How often the journal is read while nothing is missing: its newest event may be one that nobody announced."""

    def begin(self, head: int) -> None:
        """Deliver what comes after `head`."""
        self.cursor = head
        self._advance()

    def offer(self, events: Iterable[Event]) -> None:
        for event in events:
            assert event.seq is not None
            self.offered = max(self.offered, event.seq)
            if event.seq > self.cursor and len(self._waiting) < MOST_WAITING:
                self._waiting[event.seq] = event
        self._advance()

    def hint(self, seq: int) -> None:
        """The journal has an event of this sequence."""
        self.offered = max(self.offered, seq)
        self._advance()

    async def follow(self) -> None:
        """Until cancelled: read what is missing, and what nobody announces."""
        failures = FailureLog(log, "reading the event journal")
        while True:
            try:
                async with asyncio.timeout(self.poll_seconds):
                    await self._gap.wait()
                    await asyncio.sleep(GAP_SECONDS)
            except TimeoutError:
                pass
            else:
                if self.cursor >= self.offered:
                    continue
            try:
                await self.read()
                failures.worked()
            except Exception as error:  # noqa: BLE001  the database may answer the next time
                failures.failed(error)
                await asyncio.sleep(self.poll_seconds)

    async def read(self) -> None:
        """Deliver all that the journal has."""
        while events := await self._read_after(self.cursor):
            first = events[0].seq or 0
            if first > self.cursor + 1 and first not in self._waiting and self.cursor + 1 not in self._waiting:
                self._lost()
            for event in events:
                if event.seq is not None and event.seq > self.cursor:
                    self._pass_on(event)
            self._advance()

    def _advance(self) -> None:
        while (event := self._waiting.pop(self.cursor + 1, None)) is not None:
            self._pass_on(event)
        if self.cursor < self.offered:
            self._gap.set()
        else:
            self._gap.clear()

    def _pass_on(self, event: Event) -> None:
        assert event.seq is not None
        self.cursor = event.seq
        self._waiting.pop(event.seq, None)
        self._deliver(event)
