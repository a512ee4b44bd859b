"""Closes the open parts of an interrupted answer."""

from collections.abc import Collection
from functools import partial

from app.context.history import INTERRUPTED
from app.schema.errors import MessageError
from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.part import Ended, Failed, Part, Pending, ReasoningPart, Running, Span, TextPart, ToolPart
from app.session.live import compacting
from app.session.rows import message_row, part_row
from app.session.session_tx import SessionTx
from app.session.store import Store
from app.session.usage import StepUsage
from app.util import clock


async def mark_interrupted(store: Store, message: MessageWithParts, error: MessageError) -> None:
    """Closes an answer and its open parts with the error."""
    info = message.info
    assert isinstance(info, AssistantMessage)
    info.error = info.error or error
    await _close(store, message, closes_answer=True)


async def mark_for_resumption(store: Store, message: MessageWithParts, waiting: Collection[str] = ()) -> None:
    """Closes the open parts but those that wait for the user. The answer stays open for the turn that goes on with it; half a
    summary is removed, because it is written anew."""
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
        for part in parts:
            tx.put_part(part)
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
