"""How full a model's window is, by the provider's count or an estimate. Pure."""

from collections.abc import Sequence

from app.context.call_options import output_cap
from app.context.history import to_model_messages
from app.context.tokens import counted, estimate_messages
from app.schema.message import AssistantMessage, MessageWithParts
from app.schema.model import Model
from app.workspace.instance import Instance


def compacts_automatically(instance: Instance) -> bool:
    """Whether conversations are compacted automatically."""
    return instance.config.compaction.auto is not False


def usable_tokens(instance: Instance, model: Model) -> int | None:
    """The tokens that a request may have; None if the model's window is unknown."""
    limit, wanted = model.limit, instance.config.compaction.reserved or 0
    if not limit.context or limit.input:
        return max(limit.input - wanted, 1) if limit.input else None
    reserved = max(output_cap(model, instance.flags), wanted)
    # Local models are often configured with an answer as long as their window: that would leave no room for a question.
    return limit.context - reserved if reserved < limit.context else limit.context // 2


def is_overflow(instance: Instance, model: Model, used: int) -> bool:
    """Whether the next request could go over what the model takes, its answer included, after `used` tokens."""
    usable = usable_tokens(instance, model)
    return compacts_automatically(instance) and usable is not None and used > usable


def used_tokens(answer: AssistantMessage, history: Sequence[MessageWithParts], model: Model) -> int:
    """What the conversation held after its newest finished answer."""
    used = counted(answer.tokens)
    return used if used is not None else estimate_messages(to_model_messages(history, model))
