"""Converts a stored conversation to the messages of a model request. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import assert_never

from app.agent.definitions import prompt_text
from app.provider.base import (
    AssistantTurn,
    FileBlock,
    ModelMessage,
    ReasoningBlock,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolTurn,
    UserTurn,
)
from app.provider.transform import rename_calls
from app.schema.errors import MessageAbortedError
from app.schema.file import FilePart
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage
from app.schema.model import Model
from app.schema.part import (
    CompactionPart,
    Part,
    ReasoningPart,
    StepStartPart,
    SubtaskPart,
    TextPart,
    ToolPart,
)
from app.schema.tool_state import Completed, Failed, Pending, Running

CLEARED = "[Old tool result content cleared]"
INTERRUPTED = "[Tool execution was interrupted]"
SUBTASK_RUN = "The user ran the following tool."
_AS_TEXT = ("text/plain", "application/x-directory")
"""The content of files of these types is in synthetic text parts."""


def to_model_messages(messages: Iterable[MessageWithParts], model: Model) -> tuple[ModelMessage, ...]:
    return tuple(_with_distinct_calls(turn for message in messages for turn in _turns(message, model)))


def _with_distinct_calls(turns: Iterable[ModelMessage]) -> Iterator[ModelMessage]:
    """Makes call ids unique: some providers restart numbering with each answer, others reject duplicate ids in a request."""
    times: Counter[str] = Counter()

    def distinct(call_id: str) -> str:
        return call_id if times[call_id] < 2 else f"{call_id}_{times[call_id]}"

    repeated = False
    for turn in turns:
        if isinstance(turn, AssistantTurn):
            calls = [block.call_id for block in turn.content if isinstance(block, ToolCallBlock)]
            times.update(calls)
            repeated = repeated or any(times[call_id] > 1 for call_id in calls)
        yield rename_calls((turn,), distinct)[0] if repeated else turn


def _turns(message: MessageWithParts, model: Model) -> Iterator[ModelMessage]:
    info = message.info
    if isinstance(info, UserMessage):
        content = tuple(block for part in message.parts for block in _user_blocks(part))
        if content:
            yield UserTurn(content)
    elif isinstance(info, AssistantMessage):
        if _is_worth_sending(info, message.parts):
            same_model = (info.provider_id, info.model_id) == (model.provider_id, model.id)
            for step in _steps(message.parts):
                yield from _step_turns(step, same_model)
    else:
        assert_never(info)


def _user_blocks(part: Part) -> Iterator[TextBlock | FileBlock]:
    match part:
        case TextPart() if not part.ignored and part.text:
            yield TextBlock(part.text)
        case FilePart() if part.mime not in _AS_TEXT:
            yield FileBlock(part.mime, part.url, part.filename)
        case CompactionPart():
            yield TextBlock(prompt_text("compaction-question"))
        case SubtaskPart():
            yield TextBlock(SUBTASK_RUN)
        case _:
            pass


def _is_worth_sending(info: AssistantMessage, parts: Sequence[Part]) -> bool:
    """False for a failed answer, and for an aborted one without output."""
    if info.error is None:
        return True
    return isinstance(info.error, MessageAbortedError) and any(
        not isinstance(part, StepStartPart | ReasoningPart) for part in parts
    )


def _steps(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Splits the parts at each step-start."""
    step: list[Part] = []
    for part in parts:
        if isinstance(part, StepStartPart) and step:
            yield step
            step = []
        step.append(part)
    if step:
        yield step


def _step_turns(step: Sequence[Part], same_model: bool) -> Iterator[ModelMessage]:
    """The assistant's output, then a result for every tool call."""
    content = tuple(block for part in step for block in _assistant_blocks(part, same_model))
    if content:
        yield AssistantTurn(content)
    results = tuple(_tool_result(part) for part in step if isinstance(part, ToolPart))
    if results:
        yield ToolTurn(results)


def _assistant_blocks(part: Part, same_model: bool) -> Iterator[TextBlock | ReasoningBlock | ToolCallBlock]:
    """Sends provider metadata (signatures, item ids) only to the model that it came from."""
    match part:
        case TextPart() if part.text:
            yield TextBlock(part.text, part.metadata if same_model else None)
        case ReasoningPart():
            yield ReasoningBlock(part.text, part.metadata if same_model else None)
        case ToolPart():
            yield ToolCallBlock(part.call_id, part.tool, part.state.input, part.metadata if same_model else None)
        case _:
            pass


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
