"""Announces what terminal clients are to do. They hear of it by their event streams: those of the same user and directory alone.

It is for who listens now. The journal carries it to other servers, but no client is sent it later: a prompt that is submitted
when a laptop wakes up is not what anybody asked for.
"""

from app.bus.base import Event
from app.schema.terminal import SteeringRequest
from app.steering.control import ControlQueues
from app.storage.writer import Writer


class Steering:
    def __init__(self, writer: Writer, control: ControlQueues) -> None:
        self._writer = writer
        self.control = control

    async def announce(self, directory: str, user: str, request: SteeringRequest) -> None:
        """`user`: whose clients obey, empty for those of whoever uses a server without users."""
        event = Event(request.type, request.wire_json(), directory=directory, owner=user)
        await self._writer.commit(lambda tx: tx.announce(event))
