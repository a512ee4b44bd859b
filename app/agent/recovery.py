"""What a crash left open is closed at the next start: answers get an error, tools end as interrupted, asks are withdrawn."""

from app.agent.errors import TurnFailure, to_message_error
from app.agent.history import INTERRUPTED
from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.part import Part, ReasoningPart, Span, TextPart, ToolPart
from app.schema.tool_state import Ended, Failed, Pending, Running
from app.session.store import Store
from app.storage import queries
from app.util import clock

REASON = "The server stopped while this answer was being written. Send a prompt to go on."


async def settle_interrupted(store: Store) -> int:
    """Close every message that no living server is writing. Returns how many."""
    left_open = await store.ask(queries.abandoned_messages, clock.now_ms())
    for session_id, message_id in left_open:
        await _settle(store, await store.message(session_id, message_id))
    return len(left_open)


async def _settle(store: Store, message: MessageWithParts) -> None:
    info = message.info
    assert isinstance(info, AssistantMessage)
    change = store.change(info.session_id, info.path.cwd)
    for part in message.parts:
        if settled := settled_part(part):
            change.put_part(settled)
    info.error = info.error or to_message_error(TurnFailure(REASON))
    info.time.completed = clock.now_ms()
    change.put_message(info)
    await store.commit(change)


def settled_part(part: Part) -> Part | None:
    """The part as it is to be kept, None when it needs nothing."""
    now = clock.now_ms()
    match part:
        case ToolPart(state=Pending() | Running()):
            started = part.state.time.start if isinstance(part.state, Running) else now
            state = Failed(input=part.state.input, error=INTERRUPTED, time=Ended(start=started, end=now))
            return part.model_copy(update={"state": state})
        case TextPart(time=Span(end=None)) | ReasoningPart(time=Span(end=None)):
            return part.model_copy(update={"time": Span(start=part.time.start if part.time else now, end=now)})
        case _:
            return None
