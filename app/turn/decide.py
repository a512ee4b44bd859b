"""Decides what a turn does next, from the conversation alone. Pure."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TypeVar

from app.schema.errors import MessageError, StructuredOutputData, StructuredOutputError, unknown
from app.schema.message import AssistantMessage, JsonSchemaFormat, MessageWithParts, UserMessage
from app.schema.part import CompactionPart, Failed, SubtaskPart, ToolPart
from app.tools.structured_output import STRUCTURED_OUTPUT

M = TypeVar("M", UserMessage, AssistantMessage)

MAX_EMPTY_STEPS = 3
MAX_INVALID_STEPS = 8
MAX_SAME_STEPS = 20
_GOES_ON = ("tool-calls", "unknown")


@dataclass(frozen=True, slots=True)
class GiveUp:
    error: MessageError


@dataclass(frozen=True, slots=True)
class RunSubtask:
    user: UserMessage
    task: SubtaskPart


@dataclass(frozen=True, slots=True)
class Compact:
    """`auto`: the window is full; otherwise the user asked for it. `user` is the message with the request."""

    user: UserMessage
    auto: bool


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    user: UserMessage
    last_finished: AssistantMessage | None


@dataclass(frozen=True, slots=True)
class Resume:
    """An answer is open because an earlier server stopped, or died, while writing it."""

    message: MessageWithParts


Decision = Resume | GiveUp | RunSubtask | Compact | RequestAnswer


def next_action(history: Sequence[MessageWithParts]) -> Decision | None:
    """`history`: the messages since the last compaction, in the store's order. None: the newest prompt has its answer."""
    user, answer = newest(history, UserMessage), newest(history, AssistantMessage)
    if answer is not None and answer.time.completed is None:  # prompts may have come after it
        return Resume(next(message for message in history if message.info is answer))
    if user is None:
        return GiveUp(unknown("The session has no user message to answer."))
    # By `parent_id`, not by position: an answer that is stored after a prompt may belong to an earlier prompt.
    if answer is not None and answer.parent_id == user.id and is_final(answer, user):
        return None
    if error := _lacks_structured_output(history, user):
        return GiveUp(error)
    if reason := _stuck_reason(history):
        return GiveUp(unknown(reason))
    match _open_task(history):
        case (_, SubtaskPart() as task):
            return RunSubtask(user, task)
        case (asking, CompactionPart() as task):
            return Compact(asking, task.auto)
        case None:
            return RequestAnswer(user, last_finished(history))


def newest(history: Sequence[MessageWithParts], kind: type[M]) -> M | None:
    return next((message.info for message in reversed(history) if isinstance(message.info, kind)), None)


def last_finished(history: Sequence[MessageWithParts]) -> AssistantMessage | None:
    answers = (message.info for message in reversed(history) if isinstance(message.info, AssistantMessage))
    return next((answer for answer in answers if answer.finish), None)


def is_final(answer: AssistantMessage, prompt: UserMessage | None) -> bool:
    """Whether the turn ends with this answer, unless a prompt has joined. A stored error is an answer too. `prompt`: the one that
    it answers, which may demand a structured answer."""
    if answer.error is not None or answer.structured is not None:
        return True
    is_whole = answer.finish is not None and answer.finish not in _GOES_ON
    return is_whole and (answer.summary or not wants_structure(prompt))


def _open_task(history: Sequence[MessageWithParts]) -> tuple[UserMessage, SubtaskPart | CompactionPart] | None:
    """The task to do next, with its prompt: of the prompts since the last answer or error, the first with tasks; its last one."""
    found: tuple[UserMessage, SubtaskPart | CompactionPart] | None = None
    for message in reversed(history):
        if isinstance(message.info, AssistantMessage):
            if message.info.finish or message.info.error:
                break
            continue
        tasks = [part for part in message.parts if isinstance(part, SubtaskPart | CompactionPart)]
        found = (message.info, tasks[-1]) if tasks else found
    return found


def _stuck_reason(history: Sequence[MessageWithParts]) -> str | None:
    """Why the turn gives up on a model that makes no progress; None if it goes on."""
    steps = since_user(history)
    if len(steps) >= MAX_EMPTY_STEPS and all(_is_empty(step) for step in steps[-MAX_EMPTY_STEPS:]):
        return f"The model ended {MAX_EMPTY_STEPS} steps in a row without finishing an answer or calling a tool."
    if len(steps) >= MAX_INVALID_STEPS and all(_is_invalid(step) for step in steps[-MAX_INVALID_STEPS:]):
        return f"The model made nothing but unusable tool calls {MAX_INVALID_STEPS} steps in a row."
    if len(steps) >= MAX_SAME_STEPS and len({_calls(step) for step in steps[-MAX_SAME_STEPS:]}) == 1:
        return f"The model made the same tool calls {MAX_SAME_STEPS} steps in a row."
    return None


def since_user(history: Sequence[MessageWithParts]) -> list[MessageWithParts]:
    """The steps since the newest prompt, oldest first."""
    return list(takewhile(lambda message: not isinstance(message.info, UserMessage), reversed(history)))[::-1]


def _is_empty(step: MessageWithParts) -> bool:
    info = step.info
    return (
        isinstance(info, AssistantMessage) and info.finish == "unknown" and not any(isinstance(p, ToolPart) for p in step.parts)
    )


def _calls(step: MessageWithParts) -> str:
    """The step's tool calls with their arguments, as JSON."""
    return json.dumps([[part.tool, part.state.input] for part in step.parts if isinstance(part, ToolPart)], sort_keys=True)


def _is_invalid(step: MessageWithParts) -> bool:
    tools = [part for part in step.parts if isinstance(part, ToolPart)]
    return bool(tools) and all(part.tool == "invalid" for part in tools)


# Structured answers: if a prompt's `format` is a JSON schema the model must call the tool for its answer. A call that does not
# fit the schema, and an answer of text alone, are failed attempts; after some of them the turn gives up.

DEFAULT_RETRIES = 2


def wants_structure(prompt: UserMessage | None) -> bool:
    return prompt is not None and isinstance(prompt.format, JsonSchemaFormat)


def _lacks_structured_output(history: Sequence[MessageWithParts], prompt: UserMessage) -> StructuredOutputError | None:
    """The error if the model was asked often enough for an answer in the form of the prompt's `format`."""
    if not isinstance(prompt.format, JsonSchemaFormat):
        return None
    retries = DEFAULT_RETRIES if prompt.format.retry_count is None else prompt.format.retry_count
    if sum(map(_has_failed, answers_to(history, prompt))) <= retries:
        return None
    message = f"The model gave no answer that fits the prompt's format, in {retries + 1} requests."
    return StructuredOutputError(data=StructuredOutputData(message=message, retries=retries))


def answers_to(history: Sequence[MessageWithParts], prompt: UserMessage) -> list[MessageWithParts]:
    return [answer for answer in history if isinstance(answer.info, AssistantMessage) and answer.info.parent_id == prompt.id]


def _has_failed(answer: MessageWithParts) -> bool:
    calls = [part for part in answer.parts if isinstance(part, ToolPart)]
    return not calls or any(
        isinstance(call.state, Failed) and STRUCTURED_OUTPUT in (call.tool, call.state.input.get("tool")) for call in calls
    )
