"""What is announced and who listens."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from app.schema.event import AnnouncedEvent, RenderedEvent

if TYPE_CHECKING:
    from app.bus.listener import Listener


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a directory (None: to the whole server). `payload` is the JSON `{"type": …, "properties": …}`.

    `session_id` keeps the order within a session. A journaled event has got its journal sequence when it is published.
    """

    payload: bytes
    directory: str | None = None
    session_id: str | None = None
    journaled: bool = True
    seq: int | None = None

    @classmethod
    def of(
        cls,
        event: AnnouncedEvent | RenderedEvent,
        directory: str | None = None,
        session_id: str | None = None,
        *,
        journaled: bool = True,
    ) -> "Event":
        return cls(event.wire_json(), directory, session_id, journaled)

    def numbered(self, seq: int) -> "Event":
        return Event(self.payload, self.directory, self.session_id, self.journaled, seq)


ENDED = sys.maxsize
"""In place of a known length of text: nothing that is on its way of the part is to be sent."""


@dataclass(frozen=True, slots=True)
class StreamingParts:
    """Parts as they are at one moment: how many characters of the text of each are `known` from `events`, which show them."""

    known: dict[str, int]
    events: list[Event]


class PartDelta(NamedTuple):
    """Text that a streaming part gained (empty: the part changed in another way, as a tool's progress does).

    `render` returns the part's JSON as of this delta, whenever it is called: frames that are merged in between cost nothing.
    """

    directory: str
    session_id: str
    message_id: str
    part_id: str
    text: str
    size: int
    render: Callable[[], bytes]
    field: str = "text"
    part_type: str = "text"
    generation: int = 0
    """Of the lease that its turn runs under."""


class EventBus(Protocol):
    """Carries events to the clients that listen. Publishing raises nothing and waits for nobody."""

    def publish(self, event: Event) -> None: ...

    def publish_delta(self, delta: PartDelta) -> None: ...

    def subscribe(self, directory: str | None, *, deltas: bool = False, ids: bool = False, keeps_open: bool = True) -> "Listener":
        """Listen to a directory, or with None to all. `deltas`: part frames carry only what the part gained. `ids`: events carry
        their sequence. `keeps_open`: the directory counts as in use."""

    async def start(self) -> None:
        """Before the first event is published."""

    async def stop(self) -> None:
        """End every stream, and what carries events."""

    def streaming(self, directory: str | None) -> StreamingParts:
        """Of a directory (None: of all), the parts that stream on other servers."""

    def listeners(self) -> int:
        """How many clients of this server listen."""

    def directories(self) -> set[str]:
        """Those that clients keep in use by listening."""

    def disconnect(self, directory: str) -> None:
        """End the streams of one directory, after what they still have to send."""

    def close(self) -> None:
        """End every stream. One that is opened later ends at once."""
