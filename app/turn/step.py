"""One step of a turn: sends one request to the model, runs its tool calls, stores the result as one assistant message."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from app.context.tokens import counted, estimate, estimate_request
from app.plugin.runner import HookRunner
from app.provider.base import (
    AnswerTooLarge,
    ContextOverflow,
    Finish,
    FinishReason,
    ModelRequest,
    Provider,
    ProviderFailure,
    TextEnd,
    ToolCall,
    Usage,
)
from app.provider.models.cost import tokens_and_cost
from app.schema.errors import MessageError, MessageOutputLengthError
from app.schema.event import ErrorOfSession, EventSessionError
from app.schema.message import AssistantMessage
from app.schema.model import Model
from app.schema.part import Part, StepStartPart, ToolPart
from app.schema.session import Busy, Retry
from app.schema.tool_state import Running
from app.session.store import Store
from app.telemetry.records import TurnRecord
from app.turn import hooks, retry
from app.turn.errors import to_message_error
from app.turn.part_writer import PartWriter
from app.turn.processor import Processor
from app.turn.tool_calls import ToolCalls
from app.util import clock
from app.workspace.instance import Trees

log = logging.getLogger(__name__)

LAST_SNAPSHOT_TIMEOUT_SECONDS = 0.7
"""How long a failed or aborted step waits for its last snapshot."""


class StepOutcome(Enum):
    ANSWERED = "the model finished its answer"
    GOES_ON = "tools were called or the finish reason is unknown: request again"
    STOPPED = "an error or a rejected permission ends the turn"
    OVERFLOWED = "the conversation is longer than the model's window: only the open message is stored"


class StepTrees(NamedTuple):
    """The worktree's snapshots around a step; None where there is none."""

    before: str | None
    after: str | None


OnClose = Callable[[StepTrees], Awaitable[object]]


async def ignore_close(trees: StepTrees) -> None:
    pass


@dataclass(frozen=True, slots=True)
class StepTools:
    """The services that a step uses."""

    store: Store
    directory: str
    trees: Trees | None
    hooks: HookRunner
    set_status: Callable[[Busy | Retry], object]
    cancelled: Callable[[], MessageError]
    """The error of a step that was cancelled."""
    on_answer: Callable[[], object] = lambda: None
    """Called when the model begins to answer."""
    on_close: OnClose = ignore_close
    """Called when the end of a step that did not fail is posted: what is posted meanwhile goes into the same commit."""
    record: TurnRecord = field(default_factory=TurnRecord)


class Step:
    def __init__(self, scope: StepTools, message: AssistantMessage, model: Model, provider: Provider) -> None:
        self._scope = scope
        self.message = message
        self._model = model
        self._provider = provider
        self.writer = PartWriter(scope.store, scope.directory, message)
        self._tree: str | None = None
        self.trees: StepTrees | None = None
        """Of a step that is closed and did not fail."""
        self.overflow: ContextOverflow | None = None
        self.used_tokens = 0
        """The size of the conversation after this step: the provider's count, or an estimate."""

    async def run(self, calls: ToolCalls, request: Callable[[], Awaitable[ModelRequest]]) -> StepOutcome:
        """Completes the message and ends all its parts, also when cancelled, except for an overflow."""
        try:
            ready = await request()
            self._tree = await self._track()
            finish = await self._ask(calls, ready)
            await calls.finish()
            await self._close(finish, called=calls.started)
            self.used_tokens = counted(self.message.tokens) or estimate_request(ready) + estimate(self.writer.answer_text())
        except asyncio.CancelledError:
            await asyncio.shield(self._fail(calls, self._scope.cancelled()))
            raise
        except ContextOverflow as overflow:
            self.overflow = overflow.with_traceback(None)  # its frames hold this step, which would hold them
            self.writer.withdraw_attempt()
            await self.writer.stored()
        except ProviderFailure as failure:
            await self._fail(calls, to_message_error(failure))
        except Exception as error:
            log.exception("a step failed")
            await self._fail(calls, to_message_error(error))
        return self._outcome(calls)

    async def resume(self, calls: ToolCalls, parts: Sequence[Part]) -> StepOutcome:
        """Finishes a step in which an earlier server stopped: runs the calls that waited for the user."""
        start = next((part for part in parts if isinstance(part, StepStartPart)), None)
        self._tree = start.snapshot if start else None
        try:
            for part in parts:
                if isinstance(part, ToolPart) and isinstance(part.state, Running):
                    self.writer.adopt(part)
                    calls.resume(part)
            await calls.finish()
            if start is None:
                self.message.finish = "unknown"
                await self._complete()
            else:
                await self._close(None, called=any(isinstance(part, ToolPart) for part in parts))
        except asyncio.CancelledError:
            await asyncio.shield(self._fail(calls, self._scope.cancelled()))
            raise
        return self._outcome(calls)

    async def run_call(self, calls: ToolCalls, call: ToolCall) -> StepOutcome:
        """Runs a step without a model: one tool call made by the user."""
        try:
            self._tree = await self._track()
            calls.start(call)
            await calls.finish()
            self.message.finish = "tool-calls"
            await self._put_patch(await self._track())
            await self._complete()
        except asyncio.CancelledError:
            await asyncio.shield(self._fail(calls, self._scope.cancelled()))
            raise
        return self._outcome(calls)

    def _outcome(self, calls: ToolCalls) -> StepOutcome:
        if self.overflow is not None:
            return StepOutcome.OVERFLOWED
        if self.message.error is not None or calls.blocked:
            self._scope.record.rejected = calls.blocked
            return StepOutcome.STOPPED
        if self.message.structured is not None:
            return StepOutcome.ANSWERED
        return StepOutcome.GOES_ON if self.message.finish in ("tool-calls", "unknown") else StepOutcome.ANSWERED

    # Asking.

    async def _ask(self, calls: ToolCalls, request: ModelRequest) -> Finish | None:
        """Sends the request, with retries. Returns None if the stream ended without a finish event."""
        attempt, began = 0, clock.now_ms()
        while True:
            try:
                return await self._attempt(calls, request)
            except ProviderFailure as failure:
                if calls.started and not isinstance(failure, AnswerTooLarge):
                    log.warning("the stream broke after a tool was started: %s", failure)
                    return None  # a retry could run the tool twice; the next step sends its result
                attempt += 1
                now = clock.now_ms()
                decision = retry.decide_retry(failure, attempt, now - began, now)
                if isinstance(decision, retry.StopRetrying):
                    raise
                self._log_retry(failure, decision, attempt)
                await self._wait(decision, attempt)
                self.writer.withdraw_attempt()

    def _log_retry(self, failure: ProviderFailure, decision: retry.RetryAfter, attempt: int) -> None:
        model, seconds = f"{self._model.provider_id}/{self._model.id}", decision.delay_ms / 1000
        log.warning("request %d to %s failed and is sent again in %g s: %s", attempt, model, seconds, failure.message)

    async def _attempt(self, calls: ToolCalls, request: ModelRequest) -> Finish | None:
        await self.writer.stored()
        processor = Processor(self.writer, calls, self._began)
        async with aclosing(self._provider.stream(request)) as stream:
            async for event in stream:
                self.writer.raise_failure()
                if isinstance(event, TextEnd):
                    text = await hooks.text_complete(self._scope.hooks, self.writer.open_text(event.id))
                    self.writer.replace_text(event.id, text)
                processor.handle(event)
        return processor.finish

    def _began(self) -> None:
        self._scope.set_status(Busy())
        self.writer.step_start(self._tree)
        self._scope.on_answer()

    async def _wait(self, decision: retry.RetryAfter, attempt: int) -> None:
        next_attempt = clock.now_ms() + decision.delay_ms
        self._scope.set_status(Retry(attempt=attempt, message=decision.message, next=next_attempt))
        await asyncio.sleep(decision.delay_ms / 1000)
        self._scope.set_status(Busy())

    # Closing.

    async def _close(self, finish: Finish | None, *, called: bool) -> None:
        """Stores the step's end: usage, snapshot and patch. A step that has `called` no tools changed no files."""
        reason = _reason(finish, called)
        tokens, cost = tokens_and_cost(finish.usage if finish else Usage(), self._model.cost)
        message = self.message
        message.finish, message.tokens, message.cost = reason, tokens, message.cost + cost
        tree = await self._track() if called else self._tree
        self.writer.finish_open_parts()
        self.writer.step_finish(reason, tree, cost, tokens)
        self.writer.enqueue_message()
        await self._put_patch(tree)
        if reason == "length" and not called and not self.writer.has_text():
            self._announce_error(MessageOutputLengthError())
        self._post_completed()
        self.trees = StepTrees(self._tree, tree)
        await self._scope.on_close(self.trees)
        await self.writer.stored()

    async def _fail(self, calls: ToolCalls, error: MessageError) -> None:
        """Ends all parts, stores the patch, and stores and announces the error."""
        await calls.abort()
        self.writer.finish_open_parts()
        if calls.started:
            await self._put_last_patch()
        self._announce_error(error)
        await self._complete()

    async def _put_last_patch(self) -> None:
        """Has a timeout, because an abort must not wait for a large checkout. The patch is missing after a timeout."""
        try:
            async with asyncio.timeout(LAST_SNAPSHOT_TIMEOUT_SECONDS):
                await self._put_patch(await self._track())
        except TimeoutError:
            log.warning("no patch for a failed step of %s: the snapshot took too long", self.message.session_id)

    def _announce_error(self, error: MessageError) -> None:
        self.message.error = error
        self._scope.record.failure = error
        event = EventSessionError(properties=ErrorOfSession(session_id=self.message.session_id, error=error))
        self._scope.store.post(self.message.session_id, self._scope.directory, lambda tx: tx.announce(event))

    async def _complete(self) -> None:
        self._post_completed()
        await self.writer.stored()

    def _post_completed(self) -> None:
        self.message.time.completed = clock.now_ms()
        self.writer.enqueue_message()

    async def _track(self) -> str | None:
        return await self._scope.trees.track() if self._scope.trees else None

    async def _put_patch(self, tree: str | None) -> None:
        trees, before = self._scope.trees, self._tree
        if trees is None or before is None or tree is None or tree == before:
            return
        if files := await trees.patch(before, tree):
            self.writer.patch(before, files)


def _reason(finish: Finish | None, called: bool) -> FinishReason:
    """The tool calls of the step take precedence over the provider's finish reason."""
    if called:
        return "tool-calls"
    return "unknown" if finish is None or finish.reason == "tool-calls" else finish.reason
