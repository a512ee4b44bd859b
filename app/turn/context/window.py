"""How full a model's window is, by the provider's count or an estimate. Pure."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from app.providers.base import FileBlock, ModelMessage, TextBlock, ToolTurn, UserTurn
from app.providers.estimate import estimate, estimate_messages
from app.providers.options import OUTPUT_TOKEN_MAX, call_options
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage
from app.schema.model import Agent, Model
from app.schema.part import Tokens
from app.turn.context.history import to_model_messages
from app.workspace.instance import Instance

COMPACTION_AGENT = "compaction"
"""The agent that summarises conversations. A configuration may disable it."""


def compacts_automatically(instance: Instance) -> bool:
    """Whether conversations are compacted automatically."""
    return instance.config.compaction.auto is not False and COMPACTION_AGENT in instance.agents


def usable_tokens(instance: Instance, model: Model) -> int | None:
    """The tokens that a request may have; None if the model's window is unknown."""
    limit, wanted = model.limit, instance.config.compaction.reserved or 0
    if not limit.context or limit.input:
        return max(limit.input - wanted, 1) if limit.input else None
    cap = instance.flags.experimental_output_token_max or OUTPUT_TOKEN_MAX
    reserved = max(min(limit.output, cap) or cap, wanted)  # for the answer
    # Local models are often configured with an answer as long as their window: that would leave no room for a question.
    return limit.context - reserved if reserved < limit.context else limit.context // 2


def is_overflow(instance: Instance, model: Model, used: int) -> bool:
    """Whether after `used` tokens the next request, with room for its answer, may exceed the model's window. Always False if the
    configuration does not compact automatically."""
    usable = usable_tokens(instance, model)
    return compacts_automatically(instance) and usable is not None and used > usable


def used_tokens(answer: AssistantMessage, history: Sequence[MessageWithParts], model: Model) -> int:
    """The size of the conversation after its newest finished answer."""
    used = counted(answer.tokens)
    return used if used is not None else estimate_messages(to_model_messages(history, model))


def counted(tokens: Tokens) -> int | None:
    """The tokens of the conversation after an answer, by the provider's count; None if the provider does not count."""
    sent = tokens.input + tokens.cache.read + tokens.cache.write
    return sent + tokens.output if sent else None


def request_options(instance: Instance, model: Model, agent: Agent, user: UserMessage, *, small: bool = False) -> dict[str, Any]:
    """`small`: a side task such as a title."""
    options = call_options(
        model,
        agent,
        user.variant,
        small=small,
        session_id=user.session_id,
        flags=instance.flags,
        provider_options=instance.models.connected[model.provider_id].options,
        origin={
            "project": instance.location.project_id,
            "session": user.session_id,
            "request": user.id,
            "client": instance.flags.client,
        },
    )
    return asdict(options)


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
