"""The body of a request as it comes: how large it is, how slow, and how many large ones of one user are taken at a time."""

import asyncio
from dataclasses import dataclass
from weakref import WeakValueDictionary

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

from app.api.roles import PRINCIPAL
from app.users.users import OPERATOR

BODY_SECONDS = 30.0
"""How long a client may pause within a body, and how long it may take in all besides a second for each BYTES_A_SECOND."""
BYTES_A_SECOND = 32 * 1024
LARGE_BYTES = 256 * 1024
LARGE_AT_ONCE = 2
"""How many bodies of one user are read beyond LARGE_BYTES and parsed at a time: each takes several times its size while it is.
Others wait."""
BODY = "opensession.body"
"""In a request's scope its IncomingBody."""
_CLOSE = {"Connection": "close"}
"""Of an answer to a body that is not read to its end."""


@dataclass(frozen=True)
class BodyLimit:
    most: int
    setting: str

    @property
    def refusal(self) -> str:
        return f"A body may have at most {self.most} bytes ({self.setting})."


class LargeBodies:
    """Who may read one now."""

    def __init__(self) -> None:
        self._of_users: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    def of_sender(self, scope: Scope) -> asyncio.Semaphore:
        """Where there are no users, each address has its own."""
        principal, client = scope.get(PRINCIPAL, OPERATOR), scope.get("client")
        name = principal.name or f" {client[0] if client else ''}"
        of_user = self._of_users.get(name)
        if of_user is None:
            of_user = self._of_users[name] = asyncio.Semaphore(LARGE_AT_ONCE)
        return of_user


class IncomingBody:
    def __init__(self, scope: Scope, receive: Receive, limit: BodyLimit, large: LargeBodies) -> None:
        self._scope = scope
        self._receive = receive
        self._limit = limit
        self._large = large
        self._slot: asyncio.Semaphore | None = None
        self._is_complete = False
        self._size = 0
        self._waited = 0.0
        """Seconds in which the client, not this server, was waited for."""

    async def receive(self) -> Message:
        """Raises HTTPException for a body that is too large or too slow."""
        if self._is_complete:
            return await self._receive()
        message = await self._in_time()
        self._is_complete = not message.get("more_body", False)
        self._size += len(message.get("body", b""))
        if self._size > self._limit.most:
            raise HTTPException(413, self._limit.refusal, _CLOSE)
        if self._size > LARGE_BYTES and self._slot is None:
            slot = self._large.of_sender(self._scope)
            await slot.acquire()
            self._slot = slot
        return message

    async def _in_time(self) -> Message:
        loop = asyncio.get_running_loop()
        began = loop.time()
        left = BODY_SECONDS + self._size / BYTES_A_SECOND - self._waited
        try:
            async with asyncio.timeout(min(BODY_SECONDS, left)):
                return await self._receive()
        except TimeoutError:
            raise HTTPException(408, "The body came too slowly, or stopped coming.", _CLOSE) from None
        finally:
            self._waited += loop.time() - began

    def parsed(self) -> None:
        """The next large body may come, whatever is done with this one and however long that takes."""
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.release()
