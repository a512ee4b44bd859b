"""Parts that stream: announced delta by delta from memory, written at their end, and before that at most every
WRITE_BEHIND_SECONDS, a long text less often. A read meanwhile sees the present text."""

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from app.events.bus.base import Event, PartDelta
from app.events.bus.memory import MemoryBus
from app.record.writer import Chain, Lease, Tx, Writer
from app.schema.part import Part, ReasoningPart, TextPart
from app.sessions import rows

log = logging.getLogger(__name__)

MAX_OWNERS = 10_000
"""Enough for each session that streams: the first text of its parts is announced as an event."""


class SessionPublisher:
    """Hands what is committed, and the deltas of streaming parts, to the bus. Raises nothing."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self.delta_listeners = bus.delta_listeners
        self._latest: dict[str, int] = {}
        """How many events were published of each session that is being read."""
        self._readers = Counter[str]()
        self._owners: OrderedDict[str, str] = OrderedDict()
        """The owners of sessions of which something was announced lately; without sessions that have none."""

    def publish(self, event: Event) -> None:
        if event.session_id is not None and event.owner != self._owners.get(event.session_id, ""):
            self._owners.pop(event.session_id, None)
            if event.owner:
                self._owners[event.session_id] = event.owner
            if len(self._owners) > MAX_OWNERS:
                self._owners.popitem(last=False)
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
        """Within the block `latest` counts the session's events."""
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
        """The owner of a session that streams; empty if it has none."""
        return self._owners.get(session_id, "")


WRITE_BEHIND_SECONDS = 0.25
MAX_CHARACTERS_PER_SECOND = 200_000
"""Characters of one text: its row is written as a whole, however little of it is new."""


@dataclass(eq=False, slots=True)
class LivePart:
    """A part while it streams. A text begins empty and is collected in `pieces`: `part.text += …` would copy all of it with each
    delta. `size`: of the whole text, in characters. `write_after`: the time of the event loop before which the row is not
    written. `is_ending`: the part's last event, or its removal, is on its way."""

    part: Part
    directory: str
    chain: Chain | None = None
    size: int = 0
    pieces: list[str] = field(default_factory=list)
    write_after: float = 0.0
    is_ending: bool = False

    def up_to_date(self) -> Part:
        if self.pieces and isinstance(self.part, TextPart | ReasoningPart):
            self.part.text = "".join((self.part.text, *self.pieces))
            self.pieces.clear()
        return self.part

    def delta(self, text: str, generation: int) -> PartDelta:
        """Renders, at any later time, the part as it is now, without a copy of its text: from now on text may only be appended,
        and other fields are replaced, not changed."""
        part = self.part
        is_text = isinstance(part, TextPart | ReasoningPart)
        return PartDelta(
            directory=self.directory,
            session_id=part.session_id,
            message_id=part.message_id,
            part_id=part.id,
            text=text,
            size=self.size,
            render=partial(self._json_at_length, self.size) if is_text else part.model_copy().wire_json,
            part_type=part.type,
            generation=generation,
        )

    def _json_at_length(self, size: int) -> bytes:
        part = self.up_to_date()
        assert isinstance(part, TextPart | ReasoningPart)
        if len(part.text) == size:
            return part.wire_json()
        return part.model_copy(update={"text": part.text[:size]}).wire_json()


class LiveParts:
    """`leases`: by session, the lease under which this server changes it."""

    def __init__(self, writer: Writer, publisher: SessionPublisher, leases: Mapping[str, Lease]) -> None:
        self._writer = writer
        self.publisher = publisher
        self._leases = leases
        self._by_session: dict[str, dict[str, LivePart]] = {}
        self._first_writes: dict[str, asyncio.Future[Any]] = {}
        """By part, the write that stores it for the first time."""
        self._unwritten: dict[str, LivePart] = {}
        self._write_behind: asyncio.TimerHandle | None = None

    def append(self, live: LivePart, text: str) -> None:
        """Announces new text without waiting for the disk; but a part's first text waits: clients must not see a part that a
        killed server has forgotten."""
        if not text:
            return
        live.pieces.append(text)
        live.size += len(text)
        if self._begin(live):
            self._hide_until(self._write([live], waits=True), live.part.id)
        else:
            self._write_soon(live)
        self._announce(live, text)

    def changed(self, part: Part, directory: str, chain: Chain | None) -> None:
        """Announces a part that has changed otherwise, as by a tool's progress."""
        live = self._by_session.get(part.session_id, {}).get(part.id) or LivePart(part, directory)
        live.part, live.chain = part, chain
        self._begin(live)
        self._write_soon(live)
        self._announce(live, "")

    def _begin(self, live: LivePart) -> bool:
        """Whether the part begins to stream now."""
        parts = self._by_session.setdefault(live.part.session_id, {})
        is_new = live.part.id not in parts
        parts[live.part.id] = live
        live.is_ending = False
        return is_new

    def _announce(self, live: LivePart, text: str) -> None:
        """After the session's changes, but not a failed one of the part's chain. Later listeners read what there is then."""
        if not (self.publisher.delta_listeners or self._first_writes):
            return
        session_id = live.part.session_id
        lease = self._leases.get(session_id)
        delta = live.delta(text, lease.generation if lease else 0)
        self._writer.behind(session_id, partial(self.publisher.publish_delta, delta), live.chain)

    def replace(self, part_id: str, done: asyncio.Future[Any], session_id: str) -> None:
        """The change `done` puts the part in full, or removes it, in place of what streamed. Clients see no new part before."""
        live = self._by_session.get(session_id, {}).get(part_id)
        if live is None:
            self._hide_until(done, part_id)
        else:
            self._unwritten.pop(part_id, None)
            live.is_ending = True
            done.add_done_callback(partial(self._forget, live))

    def _hide_until(self, written: asyncio.Future[Any], part_id: str) -> None:
        self._first_writes[part_id] = written
        written.add_done_callback(partial(self._show, part_id))

    def _show(self, part_id: str, written: asyncio.Future[Any]) -> None:
        if self._first_writes.get(part_id) is written:
            del self._first_writes[part_id]

    def _forget(self, ended: LivePart, _: asyncio.Future[Any]) -> None:
        """A part whose row is up to date is read from the row again, unless it has streamed on meanwhile."""
        part = ended.part
        parts = self._by_session.get(part.session_id, {})
        if ended.is_ending and parts.get(part.id) is ended:
            del parts[part.id]
        if not parts:
            self._by_session.pop(part.session_id, None)

    # Reading meanwhile.

    def of(self, session_id: str) -> dict[str, Part]:
        live = self._by_session.get(session_id, {})
        return {part_id: each.up_to_date() for part_id, each in live.items() if self._is_known(part_id)}

    def all(self) -> list[tuple[Part, str, bool]]:
        """Every part that streams, with the directory that it is announced in, and whether its last event is on its way."""
        return [
            (live.up_to_date(), live.directory, live.is_ending)
            for parts in self._by_session.values()
            for part_id, live in parts.items()
            if self._is_known(part_id)
        ]

    def _is_known(self, part_id: str) -> bool:
        first = self._first_writes.get(part_id)
        return first is None or first.done()

    async def first_writes(self) -> None:
        """Waits until every part that is being stored for the first time is stored and announced."""
        if self._first_writes:
            await asyncio.wait(set(self._first_writes.values()))

    # Writing behind.

    def write_all(self) -> None:
        """Queues the writing of all text that is only in memory."""
        if self._write_behind is not None:
            self._write_behind.cancel()
            self._write_behind = None
            unwritten, self._unwritten = self._unwritten, {}
            self._write_each(unwritten.values())

    def _write_soon(self, live: LivePart) -> None:
        self._unwritten[live.part.id] = live
        if self._write_behind is None:
            self._write_behind = asyncio.get_running_loop().call_later(WRITE_BEHIND_SECONDS, self._write_due)

    def _write_due(self) -> None:
        """A long text is written less often, so that all writes of a part are in proportion to the time that it streams."""
        self._write_behind = None
        now, due = asyncio.get_running_loop().time(), list[LivePart]()
        unwritten, self._unwritten = self._unwritten, {}
        for live in unwritten.values():
            if live.write_after > now:
                self._write_soon(live)
            else:
                due.append(live)
        self._write_each(due)

    def _write_each(self, parts: Iterable[LivePart]) -> None:
        together: dict[tuple[str, Chain | None], list[LivePart]] = {}
        for live in parts:
            together.setdefault((live.part.session_id, live.chain), []).append(live)
        for each in together.values():
            self._write(each)

    def _write(self, parts: Sequence[LivePart], *, waits: bool = False) -> asyncio.Future[None]:
        """The parts are of one session and chain. One that cannot be stored as it is keeps no other from being stored. `waits`:
        the session's deltas wait for this write."""
        session_id, chain = parts[0].part.session_id, parts[0].chain
        lease, found = self._leases.get(session_id), list[dict[str, Any]]()
        for live in parts:
            live.write_after = asyncio.get_running_loop().time() + live.size / MAX_CHARACTERS_PER_SECOND
            try:
                found.append(rows.part_row(live.up_to_date()))
            except Exception:
                log.exception("part %s of session %s cannot be stored as it stands", live.part.id, session_id)

        def write(tx: Tx) -> None:
            tx.require(lease)
            tx.put(tx.sql.put_part, *found)

        return self._writer.post(write, session_id if waits else None, chain)
