"""Ends what was unfinished when a session was exported: nobody goes on with it. Pure."""

from app.schema.errors import MessageAbortedError, MessageData
from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.session import Session
from app.turn.ends import interrupted_part
from app.util import clock

UNFINISHED = MessageAbortedError(data=MessageData(message="This answer was unfinished when its session was imported."))


def finished_session(session: Session) -> Session:
    """Nothing runs in it."""
    return session.model_copy(update={"time": session.time.model_copy(update={"compacting": None})})


def finished_message(message: MessageWithParts) -> MessageWithParts:
    """Open calls and texts end as interrupted, an open answer with an error: each call has a result, and the next prompt goes on
    from there."""
    parts = [interrupted_part(part) or part for part in message.parts]
    info = message.info
    if isinstance(info, AssistantMessage) and info.time.completed is None:
        time = info.time.model_copy(update={"completed": clock.now_ms()})
        info = info.model_copy(update={"time": time, "error": info.error or UNFINISHED})
    return MessageWithParts.model_construct(info=info, parts=parts)
