"""The gate of a session: decides which requests may work on it at the same time.

A hold is one request's permission to work on a session. Holds are granted in the order of the requests, each as soon as the
earlier ones allow:

- Storing a prompt and reading for a fork run beside each other, beside a turn and beside a shell command.
- A turn begins beside the prompt that started it, and beside forks.
- All other holds are exclusive.

If the session is held, a request waits or fails with SessionBusy, depending on both kinds: see `HoldKind`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum, auto

from app.schema.errors import SessionBusy


class HoldKind(Enum):
    TURN = auto()
    SHELL = auto()
    REVERT = auto()
    """A revert or an unrevert."""
    SUMMARIZE = auto()
    """Until the turn that makes the summary has begun."""
    EDIT = auto()
    """Editing a stored message or part."""
    PROMPT = auto()
    """Until the prompt is stored and its turn has begun, or it has joined one."""
    READ = auto()
    """Reading messages for a fork, or permission rules for a new child session."""
    DELETE = auto()
    """Deleting the session."""


_SHARING = frozenset({HoldKind.PROMPT, HoldKind.READ})
_BRIEF = _SHARING | {HoldKind.EDIT}
"""These last for one transaction, so every request waits for them. For longer ones, only the kinds in `_WAITING` wait."""
_WAITING = _SHARING | {HoldKind.TURN, HoldKind.DELETE}
_OPEN_TO_SHARING = _SHARING | {HoldKind.TURN, HoldKind.SHELL}


@dataclass(eq=False, slots=True)
class Hold:
    """`granted` is done when the hold begins; it raises SessionBusy if a turn was granted first."""

    session_id: str
    kind: HoldKind
    granted: asyncio.Future[None]


class SessionGate:
    def __init__(self) -> None:
        self._holds: dict[str, list[Hold]] = {}

    def is_held(self, session_id: str) -> bool:
        """Whether any request works on the session or waits to."""
        return session_id in self._holds

    @asynccontextmanager
    async def hold(self, session_id: str, kind: HoldKind) -> AsyncIterator[None]:
        """Holds the session during the block. Waits for brief holds; for longer ones it waits or raises SessionBusy."""
        hold = self.request(session_id, kind)
        try:
            await hold.granted
            yield
        finally:
            self.release(hold)

    def request(self, session_id: str, kind: HoldKind) -> Hold:
        """Queues a hold, which the caller must `release`. Raises SessionBusy."""
        holds = self._holds.get(session_id, [])
        if kind not in _WAITING and not all(earlier.kind in _BRIEF for earlier in holds):
            raise SessionBusy(session_id)
        hold = Hold(session_id, kind, asyncio.get_running_loop().create_future())
        if kind is HoldKind.TURN:
            # The turn's prompt came before the holds that wait now.
            _reject_non_waiting(holds)
        holds.append(hold)
        self._holds[session_id] = holds
        _grant(holds)
        return hold

    def release(self, hold: Hold) -> None:
        """A second call does nothing."""
        holds = self._holds.get(hold.session_id, [])
        if hold in holds:
            holds.remove(hold)
            _grant(holds)
        if not holds:
            self._holds.pop(hold.session_id, None)


def _grant(holds: list[Hold]) -> None:
    for position, hold in enumerate(holds):
        if not hold.granted.done() and all(_may_begin_beside(hold.kind, earlier.kind) for earlier in holds[:position]):
            hold.granted.set_result(None)


def _may_begin_beside(kind: HoldKind, earlier: HoldKind) -> bool:
    if kind in _SHARING:
        return earlier in _OPEN_TO_SHARING
    return kind is HoldKind.TURN and earlier in _SHARING


def _reject_non_waiting(holds: list[Hold]) -> None:
    for hold in list(holds):
        if not hold.granted.done() and hold.kind not in _WAITING:
            holds.remove(hold)
            hold.granted.set_exception(SessionBusy(hold.session_id))
            hold.granted.exception()  # marks it as retrieved: the waiting request may have been cancelled
