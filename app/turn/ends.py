"""How turns end without a complete answer: the errors that are stored with messages, answers that are closed, deadlines."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from app.providers.base import ApiFailure, ContextOverflow, MissingKey, NoAddress, UnusableOption
from app.record.engine import StorageError
from app.schema.errors import (
    APIError,
    ApiErrorData,
    ContextOverflowData,
    ContextOverflowError,
    MessageAbortedError,
    MessageData,
    MessageError,
    ProviderAuthData,
    ProviderAuthError,
    ServiceError,
    unknown,
)
from app.schema.event import ErrorOfSession, EventSessionError
from app.schema.message import AssistantMessage, AssistantTime, MessagePath, MessageWithParts, UserMessage
from app.schema.part import Ended, Failed, ModelRef, Part, Pending, ReasoningPart, Running, Span, TextPart, ToolPart
from app.sessions.live import compacting
from app.sessions.rows import message_row, part_row
from app.sessions.session_tx import SessionTx
from app.sessions.store import Store
from app.sessions.usage import StepUsage
from app.turn.context.history import INTERRUPTED
from app.turn.decide import is_final, newest
from app.util import clock, ids

log = logging.getLogger(__name__)

NOT_STORED = "The server could not store this answer. Send a prompt to go on."


def aborted() -> MessageAbortedError:
    """The error of an abort, with OpenCode's own word as its text: clients show such an answer as stopped, not as failed."""
    return MessageAbortedError(data=MessageData(message="Aborted"))


def to_message_error(error: BaseException) -> MessageError:
    if isinstance(error, MissingKey):
        return ProviderAuthError(data=ProviderAuthData(provider_id=error.provider_id, message=error.message))
    if isinstance(error, ContextOverflow):
        return ContextOverflowError(data=ContextOverflowData(message=error.message, response_body=error.body))
    if isinstance(error, ApiFailure):
        return APIError(
            data=ApiErrorData(
                message=error.message,
                status_code=error.status,
                is_retryable=error.retryable,
                response_headers=error.headers,
                response_body=error.body,
                metadata=error.metadata,
            )
        )
    if isinstance(error, UnusableOption | NoAddress):
        return unknown(str(error))
    if isinstance(error, StorageError):
        return unknown(NOT_STORED)
    return unknown(f"{type(error).__name__}: {error}")


def error_of_turn(session_id: str, error: Exception) -> MessageError:
    """Translates an exception that ended a turn to a stored error. Logs the traceback unless it is a ServiceError."""
    if isinstance(error, ServiceError):
        return unknown(error.message)
    log.error("the turn of %s failed", session_id, exc_info=error)
    return to_message_error(error)


def log_end(session_id: str, error: MessageError) -> None:
    log.warning("the turn of %s ended with %s: %s", session_id, error.name, getattr(error.data, "message", ""))


async def answer_with(store: Store, session_id: str, directory: str, error: MessageError, root: str | None = None) -> None:
    """Stores the error as the answer to the newest prompt, unless it is answered, and closes open answers with the error. `root`:
    the checkout's, by default the directory."""
    await store.barrier()  # an answer may be on its way
    session, history, _ = await store.conversation(session_id)
    if session.time.compacting is not None:  # a summary whose end could not be stored
        await store.write(session_id, directory, lambda tx: tx.edit(partial(compacting, since=None), touch=False))
    for stored in filter(is_open, history):
        await mark_interrupted(store, stored, error)
    user, answer = newest(history, UserMessage), newest(history, AssistantMessage)
    if user is None or (answer is not None and answer.parent_id == user.id and answer.time.completed is not None):
        return
    path = MessagePath(cwd=directory, root=root or directory)
    await put_error(store, new_answer(user, user.agent, user.model, path), error)


def new_answer(prompt: UserMessage, agent: str, model: ModelRef, path: MessagePath, **more: Any) -> AssistantMessage:
    return AssistantMessage(
        id=ids.ascending("message"),
        session_id=prompt.session_id,
        time=AssistantTime(created=clock.now_ms()),
        parent_id=prompt.id,
        model_id=model.model_id,
        provider_id=model.provider_id,
        mode=agent,
        agent=agent,
        path=path,
        **more,
    )


def is_open(message: MessageWithParts) -> bool:
    return isinstance(message.info, AssistantMessage) and message.info.time.completed is None


async def put_error(store: Store, message: AssistantMessage, error: MessageError) -> None:
    """Completes the message with the error."""
    message.error = error
    message.time.completed = clock.now_ms()
    row, usage = message_row(message), StepUsage.of(message)
    event = EventSessionError(properties=ErrorOfSession(session_id=message.session_id, error=error))

    def write(tx: SessionTx) -> None:
        tx.announce(event)
        tx.put_message(row)
        tx.add_usage(usage)

    await store.write(message.session_id, message.path.cwd, write)


async def mark_interrupted(store: Store, message: MessageWithParts, error: MessageError) -> None:
    """Closes an answer and its open parts with the error."""
    info = message.info
    assert isinstance(info, AssistantMessage)
    info.error = info.error or error
    await _close(store, message, closes_answer=True)


async def mark_for_resumption(store: Store, message: MessageWithParts, waiting: Collection[str] = ()) -> None:
    """Closes the open parts except those that wait for the user. The answer stays open for the turn that resumes it; an
    unfinished summary is removed, because it is written anew."""
    info = message.info
    assert isinstance(info, AssistantMessage)
    if not info.summary:
        await _close(store, message, closes_answer=False, keep=waiting)
        return

    def remove(tx: SessionTx) -> None:
        tx.remove_message(info.id)
        tx.edit(partial(compacting, since=None), touch=False)

    await store.write(info.session_id, info.path.cwd, remove)


async def _close(store: Store, message: MessageWithParts, *, closes_answer: bool, keep: Collection[str] = ()) -> None:
    info = message.info
    assert isinstance(info, AssistantMessage)
    closed = [ended for part in message.parts if part.id not in keep and (ended := interrupted_part(part)) is not None]
    if closes_answer:
        info.time.completed = clock.now_ms()
    parts, answer = list(map(part_row, closed)), message_row(info)

    def close(tx: SessionTx) -> None:
        tx.put_parts(*parts)
        if closes_answer:
            tx.put_message(answer)
            tx.add_usage(StepUsage.of(info))
        if info.summary:
            tx.edit(partial(compacting, since=None), touch=False)

    await store.write(info.session_id, info.path.cwd, close)


def interrupted_part(part: Part) -> Part | None:
    """The closed part; None if the part is not open."""
    now = clock.now_ms()
    match part:
        case ToolPart(state=Pending() | Running()):
            started, shown = (part.state.time.start, part.state.metadata) if isinstance(part.state, Running) else (now, None)
            state = Failed(input=part.state.input, error=INTERRUPTED, metadata=shown, time=Ended(start=started, end=now))
            return part.model_copy(update={"state": state})
        case TextPart(time=Span(end=None)) | ReasoningPart(time=Span(end=None)):
            return part.model_copy(update={"time": Span(start=part.time.start if part.time else now, end=now)})
        case _:
            return None


class Deadline:
    def __init__(self) -> None:
        self._timeout = asyncio.timeout(None)
        self._is_active = False
        self._loop_times: dict[int, float] = {}

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Cancels the block when the deadline passes, and raises TimeoutError then; once."""
        async with self._timeout:
            self._is_active = True
            try:
                yield
            finally:
                self._is_active = False

    def follow(self, history: Sequence[MessageWithParts]) -> None:
        """Takes the deadlines of prompts that have joined the turn, through another server too."""
        if self._is_active and not self.has_passed():
            at = earliest(history)
            self._timeout.reschedule(None if at is None else self._loop_time(at))

    def tighten(self, at: int) -> None:
        """Takes the deadline of a prompt that joins during a step. `at` in epoch milliseconds."""
        present, wanted = self._timeout.when(), self._loop_time(at)
        if self._is_active and not self.has_passed() and (present is None or wanted < present):
            self._timeout.reschedule(wanted)

    def _loop_time(self, at: int) -> float:
        """As it was first seen: a clock that is set during the turn changes no deadline."""
        return self._loop_times.setdefault(at, asyncio.get_running_loop().time() + (at - clock.now_ms()) / 1000)

    def has_passed(self) -> bool:
        return self._timeout.expired()

    def error(self) -> MessageError:
        """The error of what was cancelled. A passed deadline is stored as an abort too: every client knows aborts."""
        if not self.has_passed():
            return aborted()
        return MessageAbortedError(data=MessageData(message="The deadline of the prompt passed before its answer was complete."))


def earliest(history: Sequence[MessageWithParts]) -> int | None:
    """The earliest deadline of the prompts since the last final answer, in epoch milliseconds."""
    deadlines: list[int] = []
    for message in reversed(history):
        if isinstance(message.info, AssistantMessage) and is_final(message.info, _prompt(history, message.info.parent_id)):
            break
        if isinstance(message.info, UserMessage) and message.info.deadline is not None:
            deadlines.append(message.info.deadline)
    return min(deadlines, default=None)


def _prompt(history: Sequence[MessageWithParts], message_id: str) -> UserMessage | None:
    """A prompt stands shortly before its newest answer."""
    for message in reversed(history):
        if isinstance(message.info, UserMessage) and message.info.id == message_id:
            return message.info
    return None
