"""Shortens a conversation that does not fit a model's window. Pure."""

from dataclasses import replace
from functools import partial

from app.providers.base import FileBlock, ModelMessage, TextBlock, ToolTurn, UserTurn
from app.providers.estimate import estimate, estimate_messages

Messages = tuple[ModelMessage, ...]

LONG_OUTPUT_TOKENS = 500
SHORT_OUTPUT_TOKENS = 100
LEFT_OUT = "[The beginning of this conversation does not fit and is left out.]"
_CUT = "\n[… left out …]\n"


def shortened(messages: Messages, room: int) -> Messages:
    """Shortens the conversation to about `room` tokens. Removes first what matters least for a summary: attached files, then the
    middle of long tool outputs, then the oldest messages except for the user's texts."""
    for shorten in (
        _without_files,
        partial(_with_outputs_cut, LONG_OUTPUT_TOKENS),
        partial(_with_outputs_cut, SHORT_OUTPUT_TOKENS),
    ):
        if estimate_messages(messages) <= room:
            return messages
        messages = tuple(map(shorten, messages))
    return messages if estimate_messages(messages) <= room else _newest(messages, room)


def _without_files(message: ModelMessage) -> ModelMessage:
    match message:
        case UserTurn(content):
            return UserTurn(tuple(_file_notice(block) if isinstance(block, FileBlock) else block for block in content))
        case ToolTurn(content):
            return ToolTurn(tuple(replace(result, files=()) for result in content))
        case _:
            return message


def _file_notice(file: FileBlock) -> TextBlock:
    return TextBlock(f"[A file was attached here: {file.filename or 'without a name'}, {file.mime}]")


def _with_outputs_cut(tokens: int, message: ModelMessage) -> ModelMessage:
    if not isinstance(message, ToolTurn):
        return message
    return ToolTurn(tuple(replace(result, text=cut_middle(result.text, tokens)) for result in message.content))


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
    turns = [message for message in messages[:start] if isinstance(message, UserTurn)]
    texts = [block.text for turn in turns for block in turn.content if isinstance(block, TextBlock)]
    earlier = cut_middle("\n\n".join(texts), for_the_rest)
    beginning = f"{LEFT_OUT} In it the user said:\n\n{earlier}" if earlier else LEFT_OUT
    return (UserTurn((TextBlock(beginning),)), *messages[start:])
