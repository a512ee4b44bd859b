"""What the model is told on top of the stored conversation: reminders that are sent and never stored (behaviour §5.7). Pure."""

from collections.abc import Sequence

from app.agent.definitions import prompt_text
from app.schema.agent import Agent
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage
from app.schema.part import Part, TextPart
from app.util import ids


def remind(history: Sequence[MessageWithParts], agent: Agent, step: int) -> list[MessageWithParts]:
    """A copy of the conversation with what this call needs said; the stored one is untouched."""
    reminded = _with_mode(history, agent)
    return _wrapped(reminded) if step > 1 else reminded


def _with_mode(history: Sequence[MessageWithParts], agent: Agent) -> list[MessageWithParts]:
    """Plan mode is announced with the newest prompt, and so is its end."""
    if agent.name == "plan":
        return _said_with_newest_prompt(history, prompt_text("plan"))
    planned = any(isinstance(message.info, AssistantMessage) and message.info.agent == "plan" for message in history)
    if planned and agent.name == "build":
        return _said_with_newest_prompt(history, prompt_text("build-switch"))
    return list(history)


def _said_with_newest_prompt(history: Sequence[MessageWithParts], text: str) -> list[MessageWithParts]:
    changed = list(history)
    place = next(place for place in range(len(changed) - 1, -1, -1) if isinstance(changed[place].info, UserMessage))
    message = changed[place]
    part = TextPart(
        id=ids.ascending("part"), session_id=message.info.session_id, message_id=message.info.id, text=text, synthetic=True
    )
    changed[place] = _with_parts(message, [*message.parts, part])
    return changed


def _wrapped(history: list[MessageWithParts]) -> list[MessageWithParts]:
    """Prompts that arrived while the model was at work are marked as such, so that it goes on with its work as well."""
    finished = max((place for place, message in enumerate(history) if _is_finished(message)), default=None)
    if finished is None:
        return history
    return [
        _with_parts(message, [_wrap(part) for part in message.parts])
        if place > finished and isinstance(message.info, UserMessage)
        else message
        for place, message in enumerate(history)
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
