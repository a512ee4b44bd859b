"""Keeps the diffs of a session and its prompt up to date while a turn changes files."""

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from app.schema.errors import NotFound
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage
from app.schema.part import PatchPart
from app.session.summary import SessionTasks, Summaries, goes_up_to
from app.workspace.instance import Instance

log = logging.getLogger(__name__)

T = TypeVar("T")

MIN_PAUSE_SECONDS = 1.0
BYTES_PER_SECOND = 200_000
"""Limits the announced bytes, because each update announces the session's whole diff."""


class StepTrees(NamedTuple):
    """The worktree's snapshots around a step; None where there is none."""

    before: str | None
    after: str | None


class TurnDiffs:
    """One update runs at a time, in a task that may outlive the turn. Requests that arrive during it, or during the pause after
    it, share the next one."""

    def __init__(self, summaries: Summaries, tasks: SessionTasks, instance: Instance, session_id: str) -> None:
        self._summaries = summaries
        self._tasks = tasks
        self._instance = instance
        self._session_id = session_id
        self._requested: dict[str, None] = {}
        self._finishing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.basis: str | None = None
        """That of the stored diffs, as the newest step found it."""

    async def begin(self, trees: StepTrees) -> None:
        """Call when the session's first step closes: a diff of nothing goes into the commit of its end."""
        if trees.before == trees.after:
            put = self._summaries.put_empty(self._instance.location, self._session_id, trees.after)
            self.basis = await _logged(put)

    def request(self, prompt_id: str, trees: StepTrees | None = None) -> None:
        """Call at the end of a step of the prompt, with its trees if they are known. Returns at once: where the step changed
        nothing that the diffs do not have, without an update."""
        if trees is not None and trees.before == trees.after and goes_up_to(self.basis, trees.after):
            return
        self._requested[prompt_id] = None
        if self._task is None or self._task.done():
            self._task = self._tasks.start(self._session_id, "diff", self._run())

    def finish(self) -> asyncio.Task[None] | None:
        """Ends the pauses. Returns the task that ends when all requested diffs are stored; None without a request."""
        self._finishing.set()
        return self._task

    async def _run(self) -> None:
        while self._requested:
            requested, self._requested = self._requested, {}
            sent = 0
            for prompt_id in requested:
                sent += await _logged(self._update(prompt_id)) or 0
            if sent:
                await self._pause(max(MIN_PAUSE_SECONDS, sent / BYTES_PER_SECOND))

    async def _update(self, prompt_id: str) -> int:
        """The diffs of the session and of the prompt. Returns the number of bytes announced."""
        return await self._summaries.update(self._instance.location, self._instance.trees, self._session_id, prompt_id)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._finishing.wait()


async def _logged(update: Awaitable[T]) -> T | None:
    """Logs an error, which must not end the turn."""
    try:
        return await update
    except NotFound as gone:
        log.debug("a diff is dropped: %s", gone)
    except Exception:
        log.exception("could not bring the session's diff up to date")
    return None


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
