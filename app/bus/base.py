"""What is announced and who listens."""

import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypedDict, Unpack

from app.bus.event_id import CursorSeal, EventId
from app.schema.event import AnnouncedEvent, RenderedEvent

if TYPE_CHECKING:
    from app.bus.listener import Listener


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a session (None: to none), in a directory (None: to the whole server). `payload` is the JSON
    `{"type": …, "properties": …}`, which clients are sent with its `id`.

    A journaled event has got its journal sequence when it is published. `owner` is the user whose session it is of (empty:
    nobody's), None for an event of no session; the writer finds it out.
    """

    type: str
    payload: bytes
    _: KW_ONLY
    session_id: str | None = None
    directory: str | None = None
    journaled: bool = True
    seq: int | None = None
    owner: str | None = None

    @classmethod
    def of(
        cls,
        event: AnnouncedEvent | RenderedEvent,
        directory: str | None = None,
        session_id: str | None = None,
        *,
        journaled: bool = True,
    ) -> "Event":
        payload = event.wire_json()
        return cls(event.type, payload, session_id=session_id, directory=directory, journaled=journaled)

    @property
    def is_second_only(self) -> bool:
        """Of the second API alone: clients of the first do not know its type."""
        return self.type.startswith("session.next.")

    @property
    def steers(self) -> bool:
        """Has terminal clients do something: those of its owner alone."""
        return self.type.startswith("tui.")

    @property
    def properties(self) -> bytes:
        """Their JSON, which the payload has behind the type."""
        return self.payload[len(b'{"type":"","properties":') + len(self.type) : -1]

    def stored(self, owner: str | None, seq: int | None) -> "Event":
        return replace(self, owner=owner, seq=seq)

    def id(self, newest: int = 0) -> EventId:
        """`newest`: the sequence behind which an event without one is sent."""
        if self.seq is not None:
            return EventId(self.seq) if self.journaled else EventId.behind(self.seq)
        return EventId.behind(newest)


@dataclass(frozen=True, slots=True)
class Audience:
    """A user who does not hear of everybody's sessions: only of those of `owner`, and what is of no session in the directories
    that `may_enter` allows. A gap between the ids, or how fast they grow, would tell of the others: `cursors` hides it."""

    owner: str
    may_enter: Callable[[str], bool]
    cursors: CursorSeal

    def receives(self, event: "Event | PartDelta") -> bool:
        """What concerns the whole server, or a sign-in to an MCP server, is for admins."""
        if event.owner is not None:
            return event.owner != "" and event.owner == self.owner
        if isinstance(event, PartDelta) or event.directory is None or event.type == _SIGN_IN:
            return False
        return self.may_enter(event.directory)


_SIGN_IN = "mcp.browser.open.failed"


ENDED = sys.maxsize
"""In place of a known length of text: nothing that is on its way of the part is to be sent."""


@dataclass(frozen=True, slots=True)
class StreamingParts:
    """Parts as they are at one moment: how many characters of the text of each are `known` from `events`, which show them."""

    known: dict[str, int]
    events: list[Event]


class PartDelta(NamedTuple):
    """New text of a streaming part (empty: the part changed in another way, as a tool's progress does).

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
    owner: str = ""
    """The user whose session it is of."""


class ListenerOptions(TypedDict, total=False):
    """What a subscription may differ in from the defaults of `Listener`."""

    deltas: bool
    """Part frames carry the new text alone."""
    ids: bool
    """Events carry their sequence."""
    keeps_open: bool
    """The directory counts as in use, the default."""
    audience: Audience | None
    """None for who hears of everything."""
    second: bool
    """Events are written as the second API does."""
    user: str | None
    """Whose steering the listener hears: the default, of whoever uses a server without users; None for everybody's."""
    steering_only: bool
    """It hears nothing else."""


class EventBus(Protocol):
    """Carries events to the clients that listen. Publishing raises nothing and waits for nobody."""

    def publish(self, event: Event) -> None: ...

    def publish_delta(self, delta: PartDelta) -> None: ...

    def subscribe(self, directory: str | None, **options: Unpack[ListenerOptions]) -> "Listener":
        """Listen to a directory, or with None to all."""

    def subscribe_own(self, directory: str) -> "Listener":
        """For what may act on an event once, on whatever server: to what this server publishes in a directory. It does not keep
        the directory in use."""

    def notify(self, wake: Callable[[], None]) -> None:
        """Calls `wake` with each event that has a sequence, from now on. It raises nothing."""

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
