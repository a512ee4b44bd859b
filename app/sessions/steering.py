"""Steering: one client has the terminal clients of its user do something (`/tui/*`). The request is announced as an event, to the
streams of the same user and directory; a program may fetch the request from a ControlQueue instead.

Only clients that listen now receive it. The journal carries it to other servers, but no client is sent it later: nobody wants a
prompt to be submitted when a laptop wakes up.
"""

import asyncio
from collections import deque

import orjson

from app.events.bus.base import Event
from app.events.bus.listener import Listener
from app.events.bus.memory import MemoryBus
from app.record.writer import Writer
from app.schema.errors import ServiceError
from app.schema.terminal import SteeringRequest

LINGER_SECONDS = 60.0
"""How long a queue is kept from which nobody fetches."""

_PATHS = {
    "tui.prompt.append": "/tui/append-prompt",
    "tui.command.execute": "/tui/execute-command",
    "tui.toast.show": "/tui/show-toast",
    "tui.session.select": "/tui/select-session",
}


class ControlEnded(ServiceError):
    status = 503
    name = "ControlEndedError"
    text = "The directory was closed, or the server stops: fetch again."


class ControlQueue:
    """The steering requests of one user and directory, for programs that fetch them one by one. Closes itself when nobody has
    fetched for LINGER_SECONDS."""

    def __init__(self, listener: Listener) -> None:
        """`listener` receives steering alone; its bounds are those of the queue."""
        self._listener = listener
        self._requests: deque[bytes] = deque()
        self._lock = asyncio.Lock()
        self._fetching = 0
        self._closing: asyncio.TimerHandle | None = None

    @property
    def is_closed(self) -> bool:
        return self._listener.closed

    async def next(self) -> bytes:
        """The JSON of the next request, `{path, body}`. Raises ControlEnded."""
        self._fetching += 1
        if self._closing is not None:
            self._closing.cancel()
        try:
            async with self._lock:
                return await self._take()
        finally:
            self._fetching -= 1
            if not self._fetching:
                self._closing = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._listener.close)

    async def _take(self) -> bytes:
        while not self._requests:
            frames = await self._listener.take()
            if frames is None:
                raise ControlEnded
            for frame in frames:
                event = orjson.loads(frame.event.payload)
                self._requests.append(orjson.dumps({"path": _PATHS[event["type"]], "body": event["properties"]}))
        return self._requests.popleft()


class Steering:
    def __init__(self, writer: Writer, bus: MemoryBus) -> None:
        self._writer = writer
        self._bus = bus
        self._queues: dict[tuple[str, str], ControlQueue] = {}

    async def announce(self, directory: str, user: str, request: SteeringRequest) -> None:
        """`user`: the one whose clients are steered; empty on a server without users."""
        event = Event(request.type, request.wire_json(), directory=directory, owner=user)
        await self._writer.commit(lambda tx: tx.announce(event))

    def queue(self, directory: str, user: str) -> ControlQueue:
        """The queue to fetch from now, made if there is none. Do not keep it: it closes itself."""
        self._queues = {key: queue for key, queue in self._queues.items() if not queue.is_closed}
        queue = self._queues.get((directory, user))
        if queue is None:
            listener = Listener(self._bus, directory, user=user, steering_only=True)
            queue = self._queues[directory, user] = ControlQueue(listener)
        return queue
