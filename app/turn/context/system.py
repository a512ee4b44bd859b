"""The system prompt: the agent's prompt or that of the model's family, the environment, and what else the call brings."""

import sys

from app.project.location import Location
from app.schema.message import UserMessage
from app.schema.model import Agent, Model
from app.util import clock
from app.workspace.agents import prompt_text

_FAMILIES = (
    ("gpt-5", "codex"),
    ("gpt-", "gpt"),
    ("o1", "gpt"),
    ("o3", "gpt"),
    ("o4", "gpt"),
    ("gemini-", "gemini"),
    ("claude", "claude"),
)
"""A substring of the model's id and the name of its prompt; the first match wins."""


def assemble(agent: Agent, model: Model, call: list[str], user: UserMessage) -> tuple[str, ...]:
    """Two texts: the agent's prompt, which is constant between turns so that providers can cache it, and the rest."""
    family = next((prompt for mark, prompt in _FAMILIES if mark in model.api.id), "default")
    first = agent.prompt or prompt_text(family)
    rest = "\n\n".join(filter(None, (*call, user.system)))
    return (first, rest) if rest else (first,)


def environment(location: Location, model: Model) -> str:
    return "\n".join(
        (
            f"You are the model {model.api.id}, exactly: {model.provider_id}/{model.api.id}.",
            "This is where you work:",
            "<env>",
            f"  Working directory: {location.directory}",
            f"  Is a git repository: {'yes' if location.is_git else 'no'}",
            f"  Platform: {sys.platform}",
            f"  Today's date: {clock.local_time():%a %b %d %Y}",
            "</env>",
        )
    )
