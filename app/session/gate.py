"""The gate of a session: who may work on it at the same time, decided in one place.

A hold is one request's permission to work on a session. Holds are granted in the order of the requests, each as soon as the
earlier ones let it:

- A prompt that is being stored, or a fork that reads, shares the session with others of the kind, a turn and a shell line.
- A turn begins beside the prompt that started it, and beside forks.
- All others work alone: no hold begins before they end, but those that a turn or a shell line lets in.

What a request does that finds the session held depends on what it is, and on how long the hold lasts: see `HoldKind`.
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
    """Of a stored message or part."""
    PROMPT = auto()
    """Until the prompt is stored and its turn has begun, or it has joined one."""
    READ = auto()
    """Of the messages by a fork, or of the permission rules by a new child session."""
    DELETE = auto()
    """Of the session."""


_SHARING = frozenset({HoldKind.PROMPT, HoldKind.READ})
_BRIEF = _SHARING | {HoldKind.EDIT}
"""They last for one transaction: every request waits for them. For longer ones only those in `_WAITING` wait."""
_WAITING = _SHARING | {HoldKind.TURN, HoldKind.DELETE}
_OPEN_TO_SHARING = _SHARING | {HoldKind.TURN, HoldKind.SHELL}


@dataclass(eq=False, slots=True)
class Hold:
    """`granted` is done when the hold begins; it raises Busy when a turn has taken the session first."""

    session_id: str
    kind: HoldKind
    granted: asyncio.Future[None]


class SessionGate:
    def __init__(self) -> None:
        self._holds: dict[str, list[Hold]] = {}

    def is_held(self, session_id: str) -> bool:
        """Whether anything works on the session, or waits to."""
        return session_id in self._holds

    @asynccontextmanager
    async def hold(self, session_id: str, kind: HoldKind) -> AsyncIterator[None]:
        """Work on the session in this block. Waits for brief holds; for longer ones it waits or raises Busy, by the kind."""
        hold = self.request(session_id, kind)
        try:
            await hold.granted
            yield
        finally:
            self.release(hold)

    def request(self, session_id: str, kind: HoldKind) -> Hold:
        """Take a place in the order of holds, which is to be given back by `release`. Raises SessionBusy."""
        holds = self._holds.get(session_id, [])
        if kind not in _WAITING and not all(earlier.kind in _BRIEF for earlier in holds):
            raise SessionBusy(session_id)
        hold = Hold(session_id, kind, asyncio.get_running_loop().create_future())
        if kind is HoldKind.TURN:
            # Its prompt came before what waits now.
            _refuse_those_that_do_not_wait(holds)
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
        if not hold.granted.done() and all(_begins_beside(hold.kind, earlier.kind) for earlier in holds[:position]):
            hold.granted.set_result(None)


def _begins_beside(kind: HoldKind, earlier: HoldKind) -> bool:
    if kind in _SHARING:
        return earlier in _OPEN_TO_SHARING
    return kind is HoldKind.TURN and earlier in _SHARING


def _refuse_those_that_do_not_wait(holds: list[Hold]) -> None:
    for hold in list(holds):
        if not hold.granted.done() and hold.kind not in _WAITING:
            holds.remove(hold)
            hold.granted.set_exception(SessionBusy(hold.session_id))
            hold.granted.exception()  # who waited for it may have been cancelled
