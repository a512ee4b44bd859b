"""The system prompt of a call: who the model is, where it works, what the project and the user tell it (behaviour §7.3)."""

import sys

from app.agent.definitions import prompt_text
from app.project.place import Place
from app.schema.agent import Agent
from app.schema.message import UserMessage
from app.schema.model import Model
from app.util import clock

_FAMILIES = (
    ("gpt-5", "codex"),
    ("gpt-", "gpt"),
    ("o1", "gpt"),
    ("o3", "gpt"),
    ("o4", "gpt"),
    ("gemini-", "gemini"),
    ("claude", "claude"),
)
"""What stands in a model's id, and its prompt; the first that is found counts."""


def assemble(agent: Agent, model: Model, call: list[str], user: UserMessage) -> tuple[str, ...]:
    """Two texts: the agent's own, which stays the same from turn to turn so that providers can cache it, and the rest."""
    first = agent.prompt or prompt_text(family_prompt(model))
    rest = [text for text in (*call, user.system) if text]
    return (first, "\n\n".join(rest)) if rest else (first,)


def family_prompt(model: Model) -> str:
    """The name of the prompt that a model gets where its agent has none."""
    return next((prompt for mark, prompt in _FAMILIES if mark in model.api.id), "default")


def environment(place: Place, model: Model) -> str:
    return "\n".join(
        (
            f"You are the model {model.api.id}, exactly: {model.provider_id}/{model.api.id}.",
            "This is where you work:",
            "<env>",
            f"  Working directory: {place.directory}",
            f"  Is a git repository: {'yes' if place.is_git else 'no'}",
            f"  Platform: {sys.platform}",
            f"  Today's date: {clock.today():%a %b %d %Y}",
            "</env>",
        )
    )
