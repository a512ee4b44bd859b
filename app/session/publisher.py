"""Hands over what is committed, and the deltas of streaming parts, to the bus; knows whose the latest sessions are."""

import logging
from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from app.bus.base import Event, PartDelta
from app.bus.memory import MemoryBus

log = logging.getLogger(__name__)

MOST_OWNERS = 10_000
"""A session that streams is among the latest: its parts' first text is announced as an event."""


class SessionPublisher:
    """Raises nothing."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self.heard = bus.heard
        self._latest: dict[str, int] = {}
        """How many events were published of the sessions that are being read."""
        self._readers = Counter[str]()
        self._owners: OrderedDict[str, str] = OrderedDict()
        """Of the sessions that belong to users, those that something was announced of lately."""

    def publish(self, event: Event) -> None:
        self._note_owner(event)
        if event.session_id in self._latest:
            self._latest[event.session_id] += 1
        try:
            self._bus.publish(event)
        except Exception:
            log.exception("event %s of session %s could not be published: %.80r", event.seq, event.session_id, event.payload)

    def publish_delta(self, delta: PartDelta) -> None:
        try:
            owner = self._owners.get(delta.session_id)
            self._bus.publish_delta(delta._replace(owner=owner) if owner else delta)
        except Exception:
            log.exception("a delta of part %s of session %s could not be published", delta.part_id, delta.session_id)

    @contextmanager
    def counting(self, session_id: str) -> Iterator[None]:
        """`latest` is known of the session within the block."""
        self._readers[session_id] += 1
        self._latest.setdefault(session_id, 0)
        try:
            yield
        finally:
            self._readers[session_id] -= 1
            if not self._readers[session_id]:
                del self._readers[session_id], self._latest[session_id]

    def latest(self, session_id: str) -> int:
        """A number that grows with each event of the session."""
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
