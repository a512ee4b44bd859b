"""The parameters of a model request."""

from app.config.flags import Flags
from app.provider.options import OUTPUT_TOKEN_MAX
from app.provider.options import call_options
from app.schema.message import UserMessage
from app.schema.model import Agent
from app.schema.model import Model
from app.workspace.instance import Instance
from dataclasses import asdict
from typing import Any


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


def output_cap(model: Model, flags: Flags) -> int:
    """The tokens reserved for the answer."""
    cap = flags.experimental_output_token_max or OUTPUT_TOKEN_MAX
    return min(model.limit.output, cap) or cap
