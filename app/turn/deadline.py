"""The deadline of a turn: the earliest one of the prompts that it answers."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from app.schema.errors import MessageError
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage
from app.turn.decide import is_final
from app.turn.errors import aborted, deadline_passed
from app.util import clock


class Deadline:
    def __init__(self) -> None:
        self._timeout = asyncio.timeout(None)
        self._is_active = False

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Cancels the block when the deadline passes, and raises TimeoutError then. Once."""
        async with self._timeout:
            self._is_active = True
            try:
                yield
            finally:
                self._is_active = False

    def follow(self, history: Sequence[MessageWithParts]) -> None:
        """Prompts may have joined the turn, through another server too."""
        if self._is_active and not self.has_passed():
            at = earliest(history)
            self._timeout.reschedule(None if at is None else _loop_time(at))

    def tighten(self, at: int) -> None:
        """A prompt joins in the middle of a step. `at` in epoch milliseconds."""
        present, wanted = self._timeout.when(), _loop_time(at)
        if self._is_active and not self.has_passed() and (present is None or wanted < present):
            self._timeout.reschedule(wanted)

    def has_passed(self) -> bool:
        return self._timeout.expired()

    def error(self) -> MessageError:
        """Of what was cancelled: by the deadline, or else by an abort."""
        return deadline_passed() if self.has_passed() else aborted()


def _loop_time(milliseconds: int) -> float:
    return asyncio.get_running_loop().time() + (milliseconds - clock.now_ms()) / 1000


def earliest(history: Sequence[MessageWithParts]) -> int | None:
    """Of the prompts since the last final answer, in epoch milliseconds."""
    deadlines: list[int] = []
    for message in reversed(history):
        if isinstance(message.info, AssistantMessage) and is_final(message.info, _prompt(history, message.info.parent_id)):
            break
        if isinstance(message.info, UserMessage) and message.info.deadline is not None:
            deadlines.append(message.info.deadline)
    return min(deadlines, default=None)


def _prompt(history: Sequence[MessageWithParts], message_id: str) -> UserMessage | None:
    """It stands shortly before its newest answer."""
    infos = (message.info for message in reversed(history))
    return next((info for info in infos if isinstance(info, UserMessage) and info.id == message_id), None)
