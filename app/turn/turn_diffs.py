"""Keeps the diffs of a session and its prompt up to date while a turn changes files."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from app.schema.errors import NotFound
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage
from app.schema.part import PatchPart

log = logging.getLogger(__name__)

MIN_PAUSE_SECONDS = 1.0
BYTES_PER_SECOND = 200_000
"""Limits the announced bytes, because each update announces the session's whole diff."""


class TurnDiffs:
    """`update` updates the diffs of the session and of one prompt and returns the number of bytes announced. `start` makes a task
    that may outlive the turn.

    One update runs at a time. Requests that arrive during it, or during the pause after it, share the next one."""

    def __init__(
        self, update: Callable[[str], Awaitable[int]], start: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    ) -> None:
        self._update = update
        self._start = start
        self._requested: dict[str, None] = {}
        self._finishing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def request(self, prompt_id: str) -> None:
        """Call at the end of a step of the prompt. Returns at once."""
        self._requested[prompt_id] = None
        if self._task is None or self._task.done():
            self._task = self._start(self._run())

    def finish(self) -> asyncio.Task[None] | None:
        """Ends the pauses. Returns the task that ends when all requested diffs are stored; None without a request."""
        self._finishing.set()
        return self._task

    async def _run(self) -> None:
        while self._requested:
            requested, self._requested = self._requested, {}
            sent = 0
            for prompt_id in requested:
                sent += await self._logged_update(prompt_id)
            if sent:
                await self._pause(max(MIN_PAUSE_SECONDS, sent / BYTES_PER_SECOND))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._finishing.wait()

    async def _logged_update(self, prompt_id: str) -> int:
        """Logs an error, which must not end the turn."""
        try:
            return await self._update(prompt_id)
        except NotFound as gone:
            log.debug("the diff of %s is dropped: %s", prompt_id, gone)
            return 0
        except Exception:
            log.exception("could not bring the session's diff up to date")
            return 0


def prompt_without_diffs(history: Sequence[MessageWithParts], prompt_id: str) -> str | None:
    """The previous prompt if its turn changed files and its diffs are missing, because its server was killed."""
    changed = False
    for message in reversed(history):
        if isinstance(message.info, AssistantMessage):
            changed = changed or (
                message.info.parent_id != prompt_id and any(isinstance(part, PatchPart) for part in message.parts)
            )
        elif message.info.id != prompt_id:
            return message.info.id if changed and not _has_diffs(message.info) else None
    return None


def _has_diffs(prompt: UserMessage) -> bool:
    return prompt.summary is not None and bool(prompt.summary.diffs)
