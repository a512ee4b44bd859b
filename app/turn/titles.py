"""A title for a session, from its first prompt, by the small model.

Nobody waits for it: it may be stored when the session is idle. One that a server did not get before it stopped is requested
again in the session's next turn.
"""

import asyncio
import logging
import re
from collections.abc import Sequence
from contextlib import suppress

from app.agent.definitions import prompt_text
from app.context.call_options import request_options
from app.context.history import to_model_messages
from app.provider.base import ModelRequest, ProviderFailure, TextBlock, TextDelta, UserTurn
from app.provider.models.selection import find, small_model
from app.schema.errors import NotFound
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage
from app.schema.model import Model
from app.schema.part import CompactionPart, Part, SubtaskPart, TextPart
from app.schema.session import Session
from app.session import title
from app.session.session_tasks import SessionTasks
from app.session.store import Store
from app.session.summary import Summaries
from app.turn import hooks
from app.workspace.instance import Instance

log = logging.getLogger(__name__)

LONGEST = 100
PAUSE_SECONDS = 0.3
"""How long a title lets a streaming answer go first: of prompts that come together, all answers begin before any title."""
MOST_REMEMBERED = 10_000
"""Sessions whose title is not requested again."""
_TRIES = 3
_THINKING = re.compile(r"<think>.*?</think>\s*", re.DOTALL)


class Titles:
    """Requests at most one title a session, until the server is started anew."""

    def __init__(self, store: Store, summaries: Summaries, tasks: SessionTasks) -> None:
        self._store = store
        self._summaries = summaries
        self._tasks = tasks
        self._requested: dict[str, None] = {}

    def start(
        self, instance: Instance, session: Session, history: Sequence[MessageWithParts], answered: asyncio.Event
    ) -> asyncio.Task[None] | None:
        """The task that titles the session and its first prompt's summary; None where no title is wanted, or one was requested.
        `answered` is set when the turn's answer is stored. A session that gets no title keeps its default; that is logged."""
        context = title_context(session, history) if session.id not in self._requested else None
        if context is None:
            return None
        self._remember(session.id)
        task = self._tasks.start(session.id, "title", self._give(instance, context, answered))
        task.add_done_callback(lambda _: self._forget(session.id) if task.cancelled() else None)
        return task

    def _remember(self, session_id: str) -> None:
        self._requested[session_id] = None
        if len(self._requested) > MOST_REMEMBERED:
            self._forget(next(iter(self._requested)))

    def _forget(self, session_id: str) -> None:
        self._requested.pop(session_id, None)

    async def _give(self, instance: Instance, context: Sequence[MessageWithParts], answered: asyncio.Event) -> None:
        prompt = context[-1].info
        assert isinstance(prompt, UserMessage)
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_SECONDS):
                await answered.wait()
        if not title.is_default((await self._store.session(prompt.session_id)).title):
            return
        with instance.resources.in_use():
            text = await self._ask(instance, prompt, context)
        if text:
            await self._store_title(instance, prompt, text)

    async def _store_title(self, instance: Instance, prompt: UserMessage, text: str) -> None:
        try:
            await self._summaries.set_title(instance.place, prompt.session_id, prompt.id, text)
        except NotFound:
            self._forget(prompt.session_id)
            raise

    async def _ask(self, instance: Instance, prompt: UserMessage, context: Sequence[MessageWithParts]) -> str | None:
        model = _model(instance, prompt)
        agent = instance.agents["title"]
        request = ModelRequest(
            model=model,
            system=(agent.prompt or prompt_text("title"),),
            messages=(UserTurn((TextBlock(prompt_text("title-request")),)), *to_model_messages(context, model)),
            session_id=prompt.session_id,
            **request_options(instance, model, agent, prompt, small=True),
        )
        request = await hooks.request(instance, request, agent, prompt)
        provider = instance.providers.provider_for(model)
        for attempt in range(1, _TRIES + 1):
            try:
                return clean("".join([event.text async for event in provider.stream(request) if isinstance(event, TextDelta)]))
            except ProviderFailure as failure:
                if attempt == _TRIES:
                    log.warning("no title for %s: %s", prompt.session_id, failure)
        return None


def title_context(session: Session, history: Sequence[MessageWithParts]) -> list[MessageWithParts] | None:
    """What a title is made from, up to the prompt that it is for: the first real one whose answer did not fail. None for a
    session that somebody has named, a subagent's session, and where nobody has prompted."""
    if session.parent_id is not None or not title.is_default(session.title):
        return None
    failed = {m.info.parent_id for m in history if isinstance(m.info, AssistantMessage) and m.info.error is not None}
    for position, message in enumerate(history):
        if _is_real_prompt(message) and message.info.id not in failed:
            return [*history[:position], _with_tasks_as_text(message)]
    return None


def clean(answer: str) -> str | None:
    """The first line that says something, without the model's thoughts, at most LONGEST characters."""
    lines = (line.strip() for line in _THINKING.sub("", answer).splitlines())
    first = next((line for line in lines if line), None)
    return first[: LONGEST - 3] + "..." if first and len(first) > LONGEST else first


def _is_real_prompt(message: MessageWithParts) -> bool:
    return isinstance(message.info, UserMessage) and not all(_is_made_by_server(part) for part in message.parts)


def _is_made_by_server(part: Part) -> bool:
    return isinstance(part, CompactionPart) or (isinstance(part, TextPart) and bool(part.synthetic))


def _with_tasks_as_text(prompt: MessageWithParts) -> MessageWithParts:
    """A prompt that only gives out tasks, as what it tells them."""
    tasks = [part for part in prompt.parts if isinstance(part, SubtaskPart)]
    if not tasks or len(tasks) < len(prompt.parts):
        return prompt
    text = TextPart(
        id=tasks[0].id, session_id=tasks[0].session_id, message_id=tasks[0].message_id, text="\n".join(t.prompt for t in tasks)
    )
    return MessageWithParts.model_construct(info=prompt.info, parts=[text])


def _model(instance: Instance, prompt: UserMessage) -> Model:
    """The title agent's own, else a small one of the prompt's provider, else the prompt's."""
    wanted = instance.agents["title"].model
    if wanted:
        return find(instance.connected, wanted.provider_id, wanted.model_id, instance.known)
    small = small_model(instance.connected, prompt.model.provider_id, instance.config.small_model, instance.known)
    return small or find(instance.connected, prompt.model.provider_id, prompt.model.model_id, instance.known)
