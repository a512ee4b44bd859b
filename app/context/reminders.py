"""Reminders: texts that are added to a request and not stored. Pure."""

from collections.abc import Sequence

from app.agent.definitions import prompt_text
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage
from app.schema.model import Agent
from app.schema.part import Part, TextPart
from app.util import ids


def remind(history: Sequence[MessageWithParts], agent: Agent, step: int) -> list[MessageWithParts]:
    """A copy of the conversation with the reminders for this request."""
    reminded = _with_mode(history, agent)
    return _wrapped(reminded) if step > 1 else reminded


def _with_mode(history: Sequence[MessageWithParts], agent: Agent) -> list[MessageWithParts]:
    """Adds the start or the end of plan mode to the newest prompt."""
    if agent.name == "plan":
        return _append_to_newest_prompt(history, prompt_text("plan"))
    planned = any(isinstance(message.info, AssistantMessage) and message.info.agent == "plan" for message in history)
    if planned and agent.name == "build":
        return _append_to_newest_prompt(history, prompt_text("build-switch"))
    return list(history)


def _append_to_newest_prompt(history: Sequence[MessageWithParts], text: str) -> list[MessageWithParts]:
    changed = list(history)
    position = next(position for position in range(len(changed) - 1, -1, -1) if isinstance(changed[position].info, UserMessage))
    message = changed[position]
    part = TextPart(
        id=ids.ascending("part"), session_id=message.info.session_id, message_id=message.info.id, text=text, synthetic=True
    )
    changed[position] = _with_parts(message, [*message.parts, part])
    return changed


def _wrapped(history: list[MessageWithParts]) -> list[MessageWithParts]:
    """Wraps prompts that arrived during the turn, so that the model continues its task as well."""
    finished = max((position for position, message in enumerate(history) if _is_finished(message)), default=None)
    if finished is None:
        return history
    return [
        _with_parts(message, [_wrap(part) for part in message.parts])
        if position > finished and isinstance(message.info, UserMessage)
        else message
        for position, message in enumerate(history)
    ]


def _is_finished(message: MessageWithParts) -> bool:
    return isinstance(message.info, AssistantMessage) and message.info.finish is not None


def _wrap(part: Part) -> Part:
    if not isinstance(part, TextPart) or part.synthetic or part.ignored or not part.text.strip():
        return part
    text = (
        "<system-reminder>\nWhile you were working the user wrote:\n"
        f"{part.text}\n\nTake this into account and carry on with your task.\n</system-reminder>"
    )
    return part.model_copy(update={"text": text})


def _with_parts(message: MessageWithParts, parts: list[Part]) -> MessageWithParts:
    return MessageWithParts.model_construct(info=message.info, parts=parts)
