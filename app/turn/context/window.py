"""How full a model's window is, by the provider's count or an estimate. Pure."""

from collections.abc import Sequence

from app.providers.estimate import estimate_messages
from app.providers.options import OUTPUT_TOKEN_MAX, CallOptions, call_options
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


def request_options(instance: Instance, model: Model, agent: Agent, user: UserMessage, *, small: bool = False) -> CallOptions:
    """`small`: a side task such as a title."""
    return call_options(
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
