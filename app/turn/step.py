"""One step of a turn: sends one request to the model, runs its tool calls, stores the result as one assistant message."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import assert_never

from app.providers import retry
from app.providers.base import (
    AnswerTooLarge,
    BlockDelta,
    BlockEnd,
    BlockOrCall,
    BlockStart,
    ContextOverflow,
    Finish,
    FinishReason,
    InvalidToolCall,
    ModelRequest,
    ProviderFailure,
    StreamStart,
    ToolCall,
    ToolInputStart,
    Usage,
)
from app.providers.catalogue import tokens_and_cost
from app.providers.estimate import estimate, estimate_request
from app.record.writer import StaleLease
from app.schema.errors import MessageError, MessageOutputLengthError
from app.schema.event import ErrorOfSession, EventSessionError
from app.schema.part import Part, ReasoningPart, Running, StepStartPart, TextPart, ToolPart
from app.schema.session import Busy, Retry
from app.sessions.summary import StepTrees
from app.turn import hooks
from app.turn.context.window import counted
from app.turn.ends import to_message_error
from app.turn.tool_calls import ToolCalls
from app.turn.turn_context import TurnContext
from app.util import clock

log = logging.getLogger(__name__)

LAST_SNAPSHOT_TIMEOUT_SECONDS = 0.7
"""How long a failed or aborted step waits for its last snapshot."""


class Step:
    """One assistant message. The writer of its calls stores all changes of the message."""

    def __init__(self, ctx: TurnContext, calls: ToolCalls) -> None:
        self._ctx = ctx
        self._calls = calls
        self._model = calls.model
        self._writer = calls.writer
        self.message = calls.writer.message
        self._tree: str | None = None
        self._finish: Finish | None = None
        """How the newest attempt ended; None if its stream ended without a finish reason."""
        self.trees: StepTrees | None = None
        """The trees of a step that is closed and did not fail."""
        self.overflow: ContextOverflow | None = None
        """The conversation is longer than the model's window: only the open message is stored."""
        self.used_tokens = 0
        """The size of the conversation after this step: the provider's count, or an estimate."""

    @property
    def is_stopped(self) -> bool:
        """Stopped by an error, or because the user rejected what a tool asked for: the turn ends with this step."""
        return self.message.error is not None or self._calls.blocked

    @property
    def has_text(self) -> bool:
        return self._writer.has_text()

    async def run(self, request: Callable[[], Awaitable[ModelRequest]]) -> None:
        """Completes the message and ends all its parts, also when cancelled, except for an overflow."""
        try:
            ready = await request()
            self._tree = await self._track()
            await self._request_with_retries(ready)
            await self._calls.finish()
            await self._close(called=self._calls.started)
            self.used_tokens = counted(self.message.tokens) or estimate_request(ready) + estimate(self._writer.answer_text())
        except asyncio.CancelledError:
            await asyncio.shield(self._fail(self._ctx.deadline.error()))
            raise
        except ContextOverflow as overflow:
            self.overflow = overflow.with_traceback(None)  # its frames hold this step, which would hold them
            self._writer.withdraw_attempt()
            await self._writer.stored()
        except ProviderFailure as failure:
            await self._fail(to_message_error(failure))
        except Exception as error:
            if not isinstance(error, StaleLease):  # the turn goes on elsewhere
                log.exception("a step failed")
            await self._fail(to_message_error(error))

    async def resume(self, parts: Sequence[Part]) -> None:
        """Finishes a step in which an earlier server stopped: runs the calls that waited for the user."""
        start = next((part for part in parts if isinstance(part, StepStartPart)), None)
        self._tree = start.snapshot if start else None
        try:
            for part in parts:
                if isinstance(part, ToolPart) and isinstance(part.state, Running):
                    self._calls.resume(part)
            await self._calls.finish()
            if start is None:
                self.message.finish = "unknown"
                await self._complete()
            else:
                await self._close(called=any(isinstance(part, ToolPart) for part in parts))
        except asyncio.CancelledError:
            await asyncio.shield(self._fail(self._ctx.deadline.error()))
            raise

    async def run_call(self, call: ToolCall) -> None:
        """Runs a step without a model: one tool call made by the user."""
        try:
            self._tree = await self._track()
            self._calls.start(call)
            await self._calls.finish()
            self.message.finish = "tool-calls"
            await self._put_patch(await self._track())
            await self._complete()
        except asyncio.CancelledError:
            await asyncio.shield(self._fail(self._ctx.deadline.error()))
            raise

    # Requesting.

    async def _request_with_retries(self, request: ModelRequest) -> None:
        """Sends the request, with retries."""
        attempt, began = 0, time.monotonic()
        while True:
            try:
                return await self._attempt(request)
            except ProviderFailure as failure:
                if self._calls.started and not isinstance(failure, AnswerTooLarge):
                    log.warning("the stream broke after a tool was started: %s", failure)
                    self._finish = None
                    return None  # a retry could run the tool twice; the next step sends its result
                attempt += 1
                elapsed_ms = int(1000 * (time.monotonic() - began))
                again = retry.decide_retry(failure, attempt, elapsed_ms, clock.now_ms())
                if again is None:
                    raise
                await self._wait(failure, attempt, *again)
                self._writer.withdraw_attempt()

    async def _attempt(self, request: ModelRequest) -> None:
        """Raises the error that keeps a part from being stored, when the next event comes."""
        self._finish = None
        writer, live = self._writer, self._ctx.store.live
        await writer.stored()
        provider = self._ctx.instance.models.providers.connection_for(self._model)
        async with aclosing(provider.stream(request)) as stream:
            async for event in stream:
                if writer.chain.failure is not None:
                    raise writer.chain.failure
                if isinstance(event, BlockDelta):
                    live.append(writer.open[event.id], event.text)
                else:
                    await self._on(event)

    async def _on(self, event: BlockOrCall) -> None:
        match event:
            case BlockStart():
                self._writer.start_block(event.id, TextPart if event.kind == "text" else ReasoningPart, event.metadata)
            case BlockEnd(kind="text"):
                text = await hooks.text_complete(self._ctx.hooks, self._writer.open_text(event.id))
                self._writer.end_block(event.id, event.metadata, text)
            case BlockEnd():
                self._writer.end_block(event.id, event.metadata)
            case ToolInputStart():
                self._writer.tool_pending(event.call_id, event.tool)
            case ToolCall():
                self._calls.start(event)
            case InvalidToolCall():
                self._calls.start_invalid(event)
            case StreamStart():
                self._ctx.live.set_status(self._ctx.directory, Busy())
                self._writer.step_start(self._tree)
                self._ctx.start_title(self.message)
            case Finish():
                self._finish = event
            case _:
                assert_never(event)

    async def _wait(self, failure: ProviderFailure, attempt: int, delay_ms: int, reason: str) -> None:
        model, seconds = f"{self._model.provider_id}/{self._model.id}", delay_ms / 1000
        log.warning("request %d to %s failed and is sent again in %g s: %s", attempt, model, seconds, failure.message)
        next_attempt, live = clock.now_ms() + delay_ms, self._ctx.live
        live.set_status(self._ctx.directory, Retry(attempt=attempt, message=reason, next=next_attempt))
        await asyncio.sleep(seconds)
        live.set_status(self._ctx.directory, Busy())

    # Closing.

    async def _close(self, *, called: bool) -> None:
        """Stores the step's end: usage, snapshot and patch. A step that has `called` no tools changed no files."""
        finish, reason = self._finish, _reason(self._finish, called)
        tokens, cost = tokens_and_cost(finish.usage if finish else Usage(), self._model.cost)
        message = self.message
        message.finish, message.tokens, message.cost = reason, tokens, message.cost + cost
        tree = await self._track() if called else self._tree
        self._writer.finish_open_parts()
        self._writer.step_finish(reason, tree, cost, tokens)
        self._writer.enqueue_message()
        await self._put_patch(tree)
        if reason == "length" and not called and not self.has_text:
            self._announce_error(MessageOutputLengthError())
        self._post_completed()
        self.trees = self._tree, tree
        if not message.summary and self._ctx.is_first_step():
            await self._ctx.diffs.begin(self.trees)  # in the same commit
        await self._writer.stored()

    async def _fail(self, error: MessageError) -> None:
        """Ends all parts, stores the patch, and stores and announces the error."""
        await self._calls.abort()
        self._writer.finish_open_parts()
        if self._calls.started:
            await self._put_last_patch()
        self._announce_error(error)
        await self._complete()

    async def _put_last_patch(self) -> None:
        """An abort does not wait for a large checkout: then the patch is stored when it is there. A revert waits for it."""
        storing = self._ctx.services.tasks.start_patch(self.message.session_id, self._store_last_patch())
        await asyncio.wait({storing}, timeout=LAST_SNAPSHOT_TIMEOUT_SECONDS)

    async def _store_last_patch(self) -> None:
        await self._put_patch(await self._track())
        await self._writer.stored()

    def _announce_error(self, error: MessageError) -> None:
        self.message.error = error
        self._ctx.record.failure = error
        event = EventSessionError(properties=ErrorOfSession(session_id=self.message.session_id, error=error))
        self._ctx.store.post(self.message.session_id, self._ctx.directory, lambda tx: tx.announce(event))

    async def _complete(self) -> None:
        self._post_completed()
        await self._writer.stored()

    def _post_completed(self) -> None:
        self.message.time.completed = clock.now_ms()
        self._writer.enqueue_message()

    async def _track(self) -> str | None:
        return await self._ctx.instance.trees.track() if self._ctx.instance.trees else None

    async def _put_patch(self, tree: str | None) -> None:
        trees, before = self._ctx.instance.trees, self._tree
        if trees is None or before is None or tree is None or tree == before:
            return
        if files := await trees.patch(before, tree):
            self._writer.patch(before, files)


def _reason(finish: Finish | None, called: bool) -> FinishReason:
    """The tool calls of the step take precedence over the provider's finish reason."""
    if called:
        return "tool-calls"
    return "unknown" if finish is None or finish.reason == "tool-calls" else finish.reason
