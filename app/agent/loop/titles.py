"""A title for a session, from its first prompt, by the small model (behaviour §5.6)."""

import logging
import re
from collections.abc import Sequence

from app.agent import hooks
from app.agent.context.call_options import request_options
from app.agent.context.history import to_model_messages
from app.agent.definitions import prompt_text
from app.agent.instance import Instance
from app.agent.loop import decide
from app.provider.base import ModelRequest, ProviderFailure, TextBlock, TextDelta, UserTurn
from app.provider.selection import find, small_model
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage
from app.schema.model import Model
from app.schema.part import SubtaskPart, TextPart
from app.schema.session import Session
from app.session import title
from app.session.summary import Summaries

log = logging.getLogger(__name__)

LONGEST = 100
_TRIES = 3
_THINKING = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


class Titles:
    def __init__(self, summaries: Summaries) -> None:
        self._summaries = summaries

    async def give(self, instance: Instance, session: Session, history: Sequence[MessageWithParts]) -> None:
        """Title the session and its first prompt's summary. A session that can't be titled keeps its default; that is logged."""
        prompt = decide.last_user(history)
        if prompt is None or not is_wanted(session, history):
            return
        try:
            text = await self._ask(instance, prompt, history)
        except ProviderFailure as failure:
            log.warning("no title for %s: %s", session.id, failure)
            return
        if text:
            await self._summaries.set_title(instance.place, session.id, prompt.id, text)

    async def _ask(self, instance: Instance, prompt: UserMessage, history: Sequence[MessageWithParts]) -> str | None:
        model = _model(instance, prompt)
        agent = instance.agents["title"]
        request = ModelRequest(
            model=model,
            system=(agent.prompt or prompt_text("title"),),
            messages=(UserTurn((TextBlock(prompt_text("title-request")),)), *to_model_messages(_context(history), model)),
            session_id=prompt.session_id,
            **request_options(instance, model, agent, prompt, small=True),
        )
        request = await hooks.request(instance, request, agent, prompt)
        provider = instance.providers.provider_for(model)
        for attempt in range(1, _TRIES + 1):
            try:
                return clean("".join([event.text async for event in provider.stream(request) if isinstance(event, TextDelta)]))
            except ProviderFailure:
                if attempt == _TRIES:
                    raise
        return None


def is_wanted(session: Session, history: Sequence[MessageWithParts]) -> bool:
    """For the first real prompt of a session that nobody has named; those whose answers failed do not count."""
    failed = {m.info.parent_id for m in history if isinstance(m.info, AssistantMessage) and m.info.error is not None}
    prompts = [message for message in history if _is_real_prompt(message) and message.info.id not in failed]
    return session.parent_id is None and title.is_default(session.title) and len(prompts) == 1


def clean(answer: str) -> str | None:
    """The first line that says something, without the model's thoughts, at most LONGEST characters."""
    lines = (line.strip() for line in _THINKING.sub("", answer).splitlines())
    first = next((line for line in lines if line), None)
    return first[: LONGEST - 3] + "..." if first and len(first) > LONGEST else first


def _is_real_prompt(message: MessageWithParts) -> bool:
    return isinstance(message.info, UserMessage) and any(
        not (isinstance(part, TextPart) and part.synthetic) for part in message.parts
    )


def _context(history: Sequence[MessageWithParts]) -> list[MessageWithParts]:
    """Up to the first real prompt; of a prompt that only gives out tasks, what it tells them."""
    place = next(place for place, message in enumerate(history) if _is_real_prompt(message))
    prompt = history[place]
    tasks = [part for part in prompt.parts if isinstance(part, SubtaskPart)]
    if not tasks or len(tasks) < len(prompt.parts):
        return list(history[: place + 1])
    text = TextPart(
        id=tasks[0].id, session_id=tasks[0].session_id, message_id=tasks[0].message_id, text="\n".join(t.prompt for t in tasks)
    )
    return [*history[:place], MessageWithParts.model_construct(info=prompt.info, parts=[text])]


def _model(instance: Instance, prompt: UserMessage) -> Model:
    """The title agent's own, else a small one of the prompt's provider, else the prompt's."""
    wanted = instance.agents["title"].model
    if wanted:
        return find(instance.connected, wanted.provider_id, wanted.model_id, instance.known)
    small = small_model(instance.connected, prompt.model.provider_id, instance.config.small_model, instance.known)
    return small or find(instance.connected, prompt.model.provider_id, prompt.model.model_id, instance.known)
