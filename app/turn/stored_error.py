"""Stores an error as the answer to a prompt. Every turn ends with an answer or with such an error."""

import logging
from collections.abc import Sequence

from app.schema.errors import MessageError, ServiceError, StructuredOutputData, StructuredOutputError
from app.schema.event import ErrorOfSession, EventSessionError
from app.schema.message import AssistantMessage, AssistantTime, MessagePath, MessageWithParts
from app.session.rows import message_row
from app.session.session_tx import SessionTx
from app.session.store import Store
from app.session.usage import StepUsage
from app.turn.decide import last_assistant, last_user
from app.turn.errors import TurnFailure, to_message_error
from app.turn.interrupted import mark_interrupted
from app.turn.turn_context import TurnContext
from app.util import clock, ids

log = logging.getLogger(__name__)


def of_turn(session_id: str, error: Exception) -> MessageError:
    """Translates an exception that ended a turn to a stored error. Logs the traceback of one that is no ServiceError."""
    if isinstance(error, ServiceError):
        return to_message_error(TurnFailure(error.message))
    log.error("the turn of %s failed", session_id, exc_info=error)
    return to_message_error(error)


def log_end(session_id: str, error: MessageError) -> None:
    log.warning("the turn of %s ended with %s: %s", session_id, error.name, getattr(error.data, "message", ""))


async def answer_with(store: Store, session_id: str, path: MessagePath, error: MessageError) -> None:
    """Stores the error as the answer to the newest prompt, unless it is answered, and closes open answers with the error."""
    history = await store.live_messages(session_id)
    for stored in filter(_is_open, history):
        await mark_interrupted(store, stored, error)
    user, answer = last_user(history), last_assistant(history)
    if user is None or (answer is not None and answer.parent_id == user.id and answer.time.completed is not None):
        return
    message = AssistantMessage(
        id=ids.ascending("message"),
        session_id=session_id,
        time=AssistantTime(created=clock.now_ms()),
        parent_id=user.id,
        model_id=user.model.model_id,
        provider_id=user.model.provider_id,
        mode=user.agent,
        agent=user.agent,
        path=path,
    )
    await put(store, message, error)


async def has_open_answer(store: Store, session_id: str) -> bool:
    return any(map(_is_open, await store.live_messages(session_id)))


def _is_open(message: MessageWithParts) -> bool:
    return isinstance(message.info, AssistantMessage) and message.info.time.completed is None


async def give_up(ctx: TurnContext, history: Sequence[MessageWithParts], reason: str) -> None:
    """Stores why the turn ends, with the last answer or in a new one. Raises TurnFailure if there is no prompt."""
    user = last_user(history)
    if user is None:
        raise TurnFailure(reason)
    message = last_assistant(history)
    if message is None or message.parent_id != user.id:
        message = ctx.new_assistant(user, user.agent, user.model)
    error = to_message_error(TurnFailure(reason))
    ctx.record.failure = error
    await put(ctx.store, message, error)


async def lack_structured_output(ctx: TurnContext, answer: AssistantMessage, retries: int) -> None:
    message = f"The model gave no answer that fits the prompt's format, in {retries + 1} requests."
    error = StructuredOutputError(data=StructuredOutputData(message=message, retries=retries))
    ctx.record.failure = error
    await put(ctx.store, answer, error)


async def put(store: Store, message: AssistantMessage, error: MessageError) -> None:
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
