"""A session before a prompt, and what it was prompted with last."""

from dataclasses import dataclass

from pydantic import ValidationError

from app.schema.base import Wire
from app.schema.part import ModelRef
from app.schema.session import Session


class LastPrompt(Wire):
    agent: str
    model: ModelRef


@dataclass(frozen=True, slots=True)
class PromptedSession:
    """`newest_prompt`: its JSON, None before the first one."""

    session: Session
    newest_prompt: str | None

    @property
    def last_prompt(self) -> LastPrompt | None:
        """None also for one that is damaged."""
        try:
            return LastPrompt.model_validate_json(self.newest_prompt) if self.newest_prompt else None
        except ValidationError:
            return None

    @property
    def last_model(self) -> ModelRef | None:
        """Of the newest prompt; before the first one, the model that the session was created with."""
        last = self.last_prompt
        return last.model if last else model_of_session(self.session)


def model_of_session(session: Session) -> ModelRef | None:
    """The one it was created with."""
    model = session.model
    return ModelRef(provider_id=model.provider_id, model_id=model.id) if model else None
