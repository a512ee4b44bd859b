"""One step of a turn: ask the model once, run the tools it calls, store it all as one assistant message."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from enum import Enum

from app.context.tokens import counted, estimate, estimate_request
from app.plugin.runner import HookRunner
from app.provider.base import (
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
from app.schema.session import Busy, Retry, SessionStatus
from app.schema.tool_state import Running
from app.session.store import Store
from app.turn import hooks, retry
from app.turn.errors import aborted, to_message_error
from app.turn.part_writer import PartWriter
from app.turn.processor import Processor
from app.turn.tool_calls import ToolCalls
from app.util import clock
from app.workspace.instance import Trees

log = logging.getLogger(__name__)

LAST_SNAPSHOT_TIMEOUT_SECONDS = 0.7
"""Seconds that a step which fails or is aborted waits for the snapshot of what it leaves."""


class StepOutcome(Enum):
    ANSWERED = "the model finished its answer"
    GOES_ON = "tools were called or the finish is unknown: ask again"
    STOPPED = "an error or a refusal ends the turn"
    REFUSED = "the conversation is longer than the model takes: nothing of this step is stored but its message, which is open"


@dataclass(frozen=True, slots=True)
class StepTools:
    """What a step needs of its surroundings, besides the request."""

    store: Store
    directory: str
    trees: Trees | None
    hooks: HookRunner
    set_status: Callable[[SessionStatus], object]
    on_answer: Callable[[], object] = lambda: None
    """Called when the model begins to answer."""


class Step:
    def __init__(self, around: StepTools, message: AssistantMessage, model: Model, provider: Provider) -> None:
        self._around = around
        self.message = message
        self._model = model
        self._provider = provider
        self.writer = PartWriter(around.store, around.directory, message)
        self._tree: str | None = None
        self.refusal: ContextOverflow | None = None
        self.used_tokens = 0
        """What the conversation holds after this step, as the provider counted or else as it is estimated."""

    async def run(self, calls: ToolCalls, request: Callable[[], Awaitable[ModelRequest]]) -> StepOutcome:
        """Unless refused, leaves the message completed and nothing of it running. Cancelled, it settles the record first."""
        try:
            self._tree, ready = await asyncio.gather(self._track(), request())
            finish = await self._ask(calls, ready)
            await calls.finish()
            await self._close(finish, calls)
            self.used_tokens = counted(self.message.tokens) or estimate_request(ready) + estimate(self.writer.said())
        except asyncio.CancelledError:
            await asyncio.shield(self._fail(calls, aborted()))
            raise
        except ContextOverflow as refusal:
            self.refusal = refusal
            self.writer.withdraw_attempt()
            await self.writer.stored()
        except ProviderFailure as failure:
            await self._fail(calls, to_message_error(failure))
        except Exception as error:
            log.exception("a step failed")
            await self._fail(calls, to_message_error(error))
        return self._outcome(calls)

    async def resume(self, calls: ToolCalls, parts: Sequence[Part]) -> StepOutcome:
        """Finish a step that an earlier server left waiting for a person."""
        try:
            self._tree = next((part.snapshot for part in parts if isinstance(part, StepStartPart)), None)
            for part in parts:
                if isinstance(part, ToolPart) and isinstance(part.state, Running):
                    self.writer.adopt(part)
                    calls.resume(part)
            await calls.finish()
            await self._close(None, calls)
        except asyncio.CancelledError:
            await asyncio.shield(self._fail(calls, aborted()))
            raise
        return self._outcome(calls)

    async def run_call(self, calls: ToolCalls, call: ToolCall) -> StepOutcome:
        """A step without a model: one call that the user made."""
        try:
            self._tree = await self._track()
            calls.start(call)
            await calls.finish()
            self.message.finish = "tool-calls"
            await self._put_patch(await self._track())
            await self._complete()
        except asyncio.CancelledError:
            await asyncio.shield(self._fail(calls, aborted()))
            raise
        return self._outcome(calls)

    def _outcome(self, calls: ToolCalls) -> StepOutcome:
        if self.refusal is not None:
            return StepOutcome.REFUSED
        if self.message.error is not None or calls.blocked:
            return StepOutcome.STOPPED
        return StepOutcome.GOES_ON if self.message.finish in ("tool-calls", "unknown") else StepOutcome.ANSWERED

    # Asking.

    async def _ask(self, calls: ToolCalls, request: ModelRequest) -> Finish | None:
        """Ask until there is an answer or no hope. None: the stream ended without saying how."""
        attempt, began = 0, clock.now_ms()
        while True:
            try:
                return await self._attempt(calls, request)
            except ProviderFailure as failure:
                if calls.started:
                    log.warning("the stream broke after a tool was started: %s", failure)
                    return None  # asking again could run the tool twice; the next step sends its result
                attempt += 1
                await self._wait_or_give_up(failure, attempt, clock.now_ms() - began)
                self.writer.withdraw_attempt()

    async def _attempt(self, calls: ToolCalls, request: ModelRequest) -> Finish | None:
        await self.writer.stored()
        processor = Processor(self.writer, calls, self._began)
        async with aclosing(self._provider.stream(request)) as stream:
            async for event in stream:
                self.writer.raise_failure()
                if isinstance(event, TextEnd):
                    text = await hooks.text_complete(self._around.hooks, self.writer.open_text(event.id))
                    self.writer.replace_text(event.id, text)
                processor.handle(event)
        return processor.finish

    def _began(self) -> None:
        self._around.set_status(Busy())
        self.writer.step_start(self._tree)
        self._around.on_answer()

    async def _wait_or_give_up(self, failure: ProviderFailure, attempt: int, elapsed_ms: int) -> None:
        now = clock.now_ms()
        decision = retry.decide_retry(failure, attempt, elapsed_ms, now)
        if isinstance(decision, retry.StopRetrying):
            raise failure
        self._around.set_status(Retry(attempt=attempt, message=decision.message, next=now + decision.delay_ms))
        await asyncio.sleep(decision.delay_ms / 1000)
        self._around.set_status(Busy())

    # Closing.

    async def _close(self, finish: Finish | None, calls: ToolCalls) -> None:
        """The step's end: usage, the tree it leaves and what it changed. A step that ran no tool changed nothing."""
        reason = _reason(finish, calls)
        tokens, cost = tokens_and_cost(finish.usage if finish else Usage(), self._model.cost)
        message = self.message
        message.finish, message.tokens, message.cost = reason, tokens, message.cost + cost
        tree = await self._track() if calls.started else self._tree
        self.writer.settle()
        self.writer.step_finish(reason, tree, cost, tokens)
        self.writer.put_message()
        await self._put_patch(tree)
        if reason == "length" and not calls.started and not self.writer.has_text():
            self._announce_error(MessageOutputLengthError())
        await self._complete()

    async def _fail(self, calls: ToolCalls, error: MessageError) -> None:
        """Settle everything, keep what was changed on disk on the record, and say what went wrong."""
        await calls.abort()
        self.writer.settle()
        if calls.started:
            await self._put_last_patch()
        self._announce_error(error)
        await self._complete()

    async def _put_last_patch(self) -> None:
        """An abort must not wait for a large checkout; what the step changed then stands in no patch."""
        try:
            async with asyncio.timeout(LAST_SNAPSHOT_TIMEOUT_SECONDS):
                await self._put_patch(await self._track())
        except TimeoutError:
            log.warning("what a failed step of %s changed took too long to find out", self.message.session_id)

    def _announce_error(self, error: MessageError) -> None:
        self.message.error = error
        change = self._around.store.change(self.message.session_id, self._around.directory)
        change.announce(EventSessionError(properties=ErrorOfSession(session_id=self.message.session_id, error=error)))
        self._around.store.post(change)

    async def _complete(self) -> None:
        self.message.time.completed = clock.now_ms()
        self.writer.put_message()
        await self.writer.stored()

    async def _track(self) -> str | None:
        return await self._around.trees.track() if self._around.trees else None

    async def _put_patch(self, tree: str | None) -> None:
        trees, before = self._around.trees, self._tree
        if trees is None or before is None or tree is None or tree == before:
            return
        if files := await trees.patch(before, tree):
            self.writer.patch(before, files)


def _reason(finish: Finish | None, calls: ToolCalls) -> FinishReason:
    """What was called counts more than what the provider says of it."""
    if calls.started:
        return "tool-calls"
    return "unknown" if finish is None or finish.reason == "tool-calls" else finish.reason
