"""Shortens a conversation that is too long even for a summary request. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from app.context.tokens import estimate, estimate_messages
from app.provider.base import FileBlock, ModelMessage, TextBlock, ToolResultBlock, ToolTurn, UserTurn

Messages = tuple[ModelMessage, ...]

LONG_OUTPUT_TOKENS = 500
SHORT_OUTPUT_TOKENS = 100
LEFT_OUT = "[The beginning of this conversation does not fit and is left out.]"
_CUT = "\n[… left out …]\n"


def shortened(messages: Messages, room: int) -> Messages:
    """Shortens the conversation to about `room` tokens. Removes first what matters least for a summary: attached files, then the
    middle of long tool outputs, then the oldest messages except for the user's texts."""
    steps: tuple[Callable[[Messages], Messages], ...] = (
        _without_files,
        partial(_with_outputs_cut, LONG_OUTPUT_TOKENS),
        partial(_with_outputs_cut, SHORT_OUTPUT_TOKENS),
    )
    for shorten in steps:
        if estimate_messages(messages) <= room:
            return messages
        messages = shorten(messages)
    return messages if estimate_messages(messages) <= room else _newest(messages, room)


def _without_files(messages: Messages) -> Messages:
    return tuple(_without_files_in(message) for message in messages)


def _without_files_in(message: ModelMessage) -> ModelMessage:
    match message:
        case UserTurn(content):
            return UserTurn(tuple(_named(block) if isinstance(block, FileBlock) else block for block in content))
        case ToolTurn(content):
            return ToolTurn(tuple(replace(result, files=()) for result in content))
        case _:
            return message


def _named(file: FileBlock) -> TextBlock:
    return TextBlock(f"[A file was attached here: {file.filename or 'without a name'}, {file.mime}]")


def _with_outputs_cut(tokens: int, messages: Messages) -> Messages:
    def cut(result: ToolResultBlock) -> ToolResultBlock:
        return replace(result, text=cut_middle(result.text, tokens))

    return tuple(ToolTurn(tuple(map(cut, one.content))) if isinstance(one, ToolTurn) else one for one in messages)


def cut_middle(text: str, tokens: int) -> str:
    """The text's beginning and end, in about `tokens` tokens."""
    size = estimate(text)
    if size <= tokens:
        return text
    half = len(text) * tokens // size // 2
    return text[:half] + _CUT + text[len(text) - half :]


def _newest(messages: Messages, room: int) -> Messages:
    """As many of the newest messages as fit, preceded by the user's texts of the others."""
    for_the_rest = room // 4
    start, left = len(messages), room - for_the_rest
    while start and (size := estimate_messages(messages[start - 1 : start])) <= left:
        start, left = start - 1, left - size
    while start < len(messages) and isinstance(messages[start], ToolTurn):
        start += 1
    earlier = cut_middle(_user_texts(messages[:start]), for_the_rest)
    beginning = f"{LEFT_OUT} In it the user said:\n\n{earlier}" if earlier else LEFT_OUT
    return (UserTurn((TextBlock(beginning),)), *messages[start:])


def _user_texts(messages: Sequence[ModelMessage]) -> str:
    turns = [message for message in messages if isinstance(message, UserTurn)]
    return "\n\n".join(block.text for turn in turns for block in turn.content if isinstance(block, TextBlock))
