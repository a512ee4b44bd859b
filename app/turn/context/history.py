"""Converts a stored conversation to the messages of a model request. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from app.providers.base import (
    AnswerBlock,
    AssistantTurn,
    FileBlock,
    ModelMessage,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolTurn,
    UserBlock,
    UserTurn,
)
from app.providers.transform import rename_calls
from app.schema.errors import MessageAbortedError
from app.schema.message import AssistantMessage, Message, MessageWithParts, UserMessage
from app.schema.model import Agent, Model
from app.schema.part import (
    CompactionPart,
    Completed,
    Failed,
    FilePart,
    Part,
    Pending,
    ReasoningPart,
    Running,
    StepStartPart,
    SubtaskPart,
    TextPart,
    ToolPart,
)
from app.util import ids
from app.workspace.agents import prompt_text

CLEARED = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
SUBTASK_RUN = "The user ran the following tool."
_AS_TEXT = ("text/plain", "application/x-directory")
"""The content of files of these types is in synthetic text parts."""


def to_model_messages(messages: Iterable[MessageWithParts], model: Model) -> tuple[ModelMessage, ...]:
    turns: list[ModelMessage] = []
    for message in messages:
        info = message.info
        if isinstance(info, UserMessage):
            content: tuple[UserBlock, ...] = tuple(filter(None, map(_user_block, message.parts)))
            turns += [UserTurn(content)] if content else []
        elif _is_worth_sending(info, message.parts):
            same_model = (info.provider_id, info.model_id) == (model.provider_id, model.id)
            turns += _answer_turns(message.parts, same_model)
    return tuple(_with_distinct_calls(turns))


def _with_distinct_calls(turns: Iterable[ModelMessage]) -> Iterator[ModelMessage]:
    """Makes call ids unique: some providers restart numbering with each answer, others reject duplicate ids in a request."""
    times: Counter[str] = Counter()

    def distinct(call_id: str) -> str:
        return call_id if times[call_id] < 2 else f"{call_id}_{times[call_id]}"

    repeated = False
    for turn in turns:
        calls = [block.call_id for block in turn.content if isinstance(block, ToolCallBlock)]
        if calls:
            times.update(calls)
            repeated = repeated or any(times[call_id] > 1 for call_id in calls)
        yield rename_calls((turn,), distinct)[0] if repeated else turn


def _user_block(part: Part) -> UserBlock | None:
    match part:
        case TextPart():
            return TextBlock(part.text) if part.text and not part.ignored else None
        case FilePart() if part.mime not in _AS_TEXT:
            return FileBlock(part.mime, part.url, part.filename)
        case CompactionPart():
            return TextBlock(prompt_text("compaction-question"))
        case SubtaskPart():
            return TextBlock(SUBTASK_RUN)
        case _:
            return None


def _is_worth_sending(info: AssistantMessage, parts: Sequence[Part]) -> bool:
    """False for a failed answer, and for an aborted one without output."""
    if info.error is None:
        return True
    return isinstance(info.error, MessageAbortedError) and any(
        not isinstance(part, StepStartPart | ReasoningPart) for part in parts
    )


def _answer_turns(parts: Sequence[Part], same_model: bool) -> list[ModelMessage]:
    """Each step's output, then a result for every tool call. Reads each part's `type`, because `isinstance` takes longer."""
    turns: list[ModelMessage] = []
    content: list[AnswerBlock] = []
    results: list[ToolResultBlock] = []
    for part in parts:
        if part.type == "step-start":
            turns += _step_turns(content, results)
            content, results = [], []
        elif (block := _output_block(part, same_model)) is not None:
            content.append(block)
        if part.type == "tool":
            results.append(_tool_result(part))
    return [*turns, *_step_turns(content, results)]


def _step_turns(content: list[AnswerBlock], results: list[ToolResultBlock]) -> list[ModelMessage]:
    output: list[ModelMessage] = [AssistantTurn(tuple(content))] if content else []
    return [*output, ToolTurn(tuple(results))] if results else output


def _output_block(part: Part, same_model: bool) -> AnswerBlock | None:
    """Sends provider metadata (signatures, item ids) only to the model that it came from."""
    if part.type == "text":
        return TextBlock(part.text, part.metadata if same_model else None) if part.text else None
    if part.type == "reasoning":
        return ReasoningBlock(part.text, part.metadata if same_model else None)
    if part.type == "tool":
        return ToolCallBlock(part.call_id, part.tool, part.state.input, part.metadata if same_model else None)
    return None


def _tool_result(part: ToolPart) -> ToolResultBlock:
    state = part.state
    match state:
        case Completed() if state.time.compacted is not None:
            return ToolResultBlock(part.call_id, part.tool, CLEARED)
        case Completed():
            files = tuple(FileBlock(file.mime, file.url, file.filename) for file in state.attachments or ())
            return ToolResultBlock(part.call_id, part.tool, state.output, files=files)
        case Failed():
            return ToolResultBlock(part.call_id, part.tool, state.error, is_error=True)
        case Pending() | Running():
            return ToolResultBlock(part.call_id, part.tool, INTERRUPTED, is_error=True)
        case _:
            assert_never(state)


def remind(history: Sequence[MessageWithParts], agent: Agent, step: int) -> list[MessageWithParts]:
    """A copy of the conversation with the reminders for this request: the start or the end of plan mode, and prompts that arrived
    during the turn."""
    reminded = list(history)
    if agent.name == "plan":
        _append_to_newest_prompt(reminded, prompt_text("plan"))
    planned = any(isinstance(message.info, AssistantMessage) and message.info.agent == "plan" for message in history)
    if planned and agent.name == "build":
        _append_to_newest_prompt(reminded, prompt_text("build-switch"))
    return _wrapped(reminded) if step > 1 else reminded


def _append_to_newest_prompt(changed: list[MessageWithParts], text: str) -> None:
    position = next(position for position in range(len(changed) - 1, -1, -1) if isinstance(changed[position].info, UserMessage))
    message = changed[position]
    changed[position] = _with_parts(message, [*message.parts, synthetic_text(message.info, text)])


def synthetic_text(message: Message, text: str) -> TextPart:
    """The model reads it as a part of the message; users do not see it."""
    return TextPart(id=ids.ascending("part"), session_id=message.session_id, message_id=message.id, text=text, synthetic=True)


def _wrapped(history: list[MessageWithParts]) -> list[MessageWithParts]:
    """Wraps prompts that arrived during the turn, so that the model continues its task as well."""
    infos = [message.info for message in history]
    answers = [position for position, info in enumerate(infos) if isinstance(info, AssistantMessage) and info.finish is not None]
    if not answers:
        return history
    wrapped = history[: answers[-1] + 1]
    for message in history[answers[-1] + 1 :]:
        is_prompt = isinstance(message.info, UserMessage)
        wrapped.append(_with_parts(message, [_wrap(part) for part in message.parts]) if is_prompt else message)
    return wrapped


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
