"""Queues of steering requests, for programs that fetch one after the other instead of following the events.

There is one for each user and directory, from the first fetch until nobody has fetched for a while: what comes between two
fetches waits in it. Several programs share it, each request goes to one of them.
"""

import asyncio
from collections import deque

import orjson

from app.bus.memory import Listener, MemoryBus
from app.schema.errors import ServiceError

LINGER_SECONDS = 60.0
"""How long a queue is kept that nobody fetches from."""

_PATHS = {
    "tui.prompt.append": "/tui/append-prompt",
    "tui.command.execute": "/tui/execute-command",
    "tui.toast.show": "/tui/show-toast",
    "tui.session.select": "/tui/select-session",
}


class ControlEnded(ServiceError):
    status = 503
    name = "ControlEndedError"

    def __init__(self) -> None:
        super().__init__("The directory was closed, or the server stops: fetch again.")


class ControlQueue:
    """Closes itself when nobody has fetched from it for `linger_seconds`."""

    def __init__(self, listener: Listener, linger_seconds: float) -> None:
        """`listener` hears steering alone, and bounds what may wait."""
        self._listener = listener
        self._linger_seconds = linger_seconds
        self._requests: deque[bytes] = deque()
        self._lock = asyncio.Lock()
        self._fetching = 0
        self._closing: asyncio.TimerHandle | None = None

    @property
    def is_closed(self) -> bool:
        return self._listener.closed

    async def next(self) -> bytes:
        """The JSON of the next request, `{path, body}`. Raises ControlEnded."""
        self._begin_fetch()
        try:
            async with self._lock:
                return await self._take()
        finally:
            self._end_fetch()

    async def _take(self) -> bytes:
        while not self._requests:
            frames = await self._listener.take()
            if frames is None:
                raise ControlEnded
            self._requests.extend(_control_request(frame.event.payload) for frame in frames)
        return self._requests.popleft()

    def _begin_fetch(self) -> None:
        self._fetching += 1
        if self._closing is not None:
            self._closing.cancel()

    def _end_fetch(self) -> None:
        self._fetching -= 1
        if not self._fetching:
            self._closing = asyncio.get_running_loop().call_later(self._linger_seconds, self._listener.close)


class ControlQueues:
    def __init__(self, bus: MemoryBus, linger_seconds: float = LINGER_SECONDS) -> None:
        self._bus = bus
        self._linger_seconds = linger_seconds
        self._queues: dict[tuple[str, str], ControlQueue] = {}

    def of(self, directory: str, user: str) -> ControlQueue:
        """For one fetch."""
        self._queues = {key: queue for key, queue in self._queues.items() if not queue.is_closed}
        queue = self._queues.get((directory, user))
        if queue is None:
            listener = Listener(self._bus, directory, user=user, steering_only=True)
            queue = self._queues[directory, user] = ControlQueue(listener, self._linger_seconds)
        return queue


def _control_request(payload: bytes) -> bytes:
    event = orjson.loads(payload)
    return orjson.dumps({"path": _PATHS[event["type"]], "body": event["properties"]})
