"""The order in which clients hear of a session: its committed changes, and between them the deltas of streaming parts.

A change is announced when it is committed. A delta is stored later than it is announced; it only waits for the changes of its
session that were posted before it.
"""

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from app.bus.base import Event, PartDelta
from app.bus.memory import MemoryBus
from app.storage.writer import Chain

log = logging.getLogger(__name__)

MOST_OWNERS = 10_000
"""A session that streams is among the latest: its parts' first text is announced as an event."""


class Sequencer:
    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self._pending: dict[str, deque[list[tuple[PartDelta, Chain | None]]]] = {}
        """Per session, for each change that is not committed yet: the deltas that wait for it."""
        self._announcements = 0
        self._latest: dict[str, int] = {}
        self._readers = Counter[str]()
        self._owners: OrderedDict[str, str] = OrderedDict()
        """Of the sessions that belong to users, those that something was announced of lately."""

    def expect(self, sessions: Iterable[str]) -> None:
        """A change that concerns these sessions was posted. `announce` or `withdraw` follow in the order of posting."""
        for session_id in sessions:
            self._pending.setdefault(session_id, deque()).append([])

    def announce(self, sessions: Iterable[str], events: Sequence[Event]) -> None:
        """Publish what was committed, then the deltas that waited for it."""
        for event in events:
            self._note_owner(event)
            self._publish(event)
        self._announcements += 1
        self._latest.update((session_id, self._announcements) for session_id in sessions if session_id in self._latest)
        self.withdraw(sessions)

    def withdraw(self, sessions: Iterable[str]) -> None:
        """The change was not stored. Publish the deltas that waited for it, except those of its chain."""
        for session_id in sessions:
            changes = self._pending[session_id]
            released = changes.popleft()
            if not changes:
                del self._pending[session_id]
            for delta, chain in released:
                self._publish_delta(delta, chain)

    def delta(self, delta: PartDelta, chain: Chain | None = None) -> None:
        """Publish now, or behind the pending changes of the session. Nothing is published behind a failed change of `chain`."""
        changes = self._pending.get(delta.session_id)
        if changes:
            changes[-1].append((delta, chain))
        else:
            self._publish_delta(delta, chain)

    @contextmanager
    def counting(self, session_id: str) -> Iterator[None]:
        """`latest` is known of the session within the block."""
        self._readers[session_id] += 1
        self._latest.setdefault(session_id, self._announcements)
        try:
            yield
        finally:
            self._readers[session_id] -= 1
            if not self._readers[session_id]:
                del self._readers[session_id], self._latest[session_id]

    def latest(self, session_id: str) -> int:
        """A number that grows when a change of the session is announced."""
        return self._latest[session_id]

    def owner(self, session_id: str) -> str:
        """Of a session that streams; empty for nobody's."""
        return self._owners.get(session_id, "")

    def _note_owner(self, event: Event) -> None:
        if event.session_id is None or event.owner == self._owners.get(event.session_id, ""):
            return
        self._owners.pop(event.session_id, None)
        if event.owner:
            self._owners[event.session_id] = event.owner
        if len(self._owners) > MOST_OWNERS:
            self._owners.popitem(last=False)

    def _publish(self, event: Event) -> None:
        try:
            self._bus.publish(event)
        except Exception:
            log.exception("event %s of session %s could not be published: %.80r", event.seq, event.session_id, event.payload)

    def _publish_delta(self, delta: PartDelta, chain: Chain | None) -> None:
        if chain and chain.failure:
            return
        try:
            owner = self._owners.get(delta.session_id)
            self._bus.publish_delta(delta._replace(owner=owner) if owner else delta)
        except Exception:
            log.exception("a delta of part %s of session %s could not be published", delta.part_id, delta.session_id)
