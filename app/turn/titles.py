"""Generates a session's title from its first prompt, with the small model.

Nothing waits for the title: it may be stored when the session is idle. If the server stops first, the session's next turn
requests it again.
"""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from io import StringIO

from app.providers.base import BlockDelta, Finish, ModelRequest, ProviderFailure, StreamEvent, TextBlock, Usage, UserTurn
from app.providers.catalogue import tokens_and_cost
from app.providers.selection import ProviderModelNotFoundError, small_model
from app.schema.errors import NotFound
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage
from app.schema.model import Model
from app.schema.part import CompactionPart, ModelRef, SubtaskPart, TextPart
from app.schema.session import Session
from app.sessions.store import Store
from app.sessions.summary import SessionTasks, Summaries, is_default_title
from app.sessions.usage import StepUsage
from app.turn import hooks
from app.turn.context.history import to_model_messages
from app.turn.context.window import request_options
from app.util import ids
from app.workspace.agents import prompt_text
from app.workspace.instance import Instance

log = logging.getLogger(__name__)

MAX_LENGTH = 100
PAUSE_SECONDS = 0.3
"""How long a title request waits for the answer, so that it delays neither that nor how answers to other prompts begin."""
MAX_REMEMBERED = 10_000
"""How many sessions are remembered so that their title is not requested again."""
_MAX_ATTEMPTS = 3
_THINKING = re.compile(r"<think>.*?(?:</think>|\Z)\s*", re.DOTALL)
"""Also without an end: a hostile answer may have any number of such beginnings."""


class Titles:
    """Requests at most one title per session and server start."""

    def __init__(self, store: Store, summaries: Summaries, tasks: SessionTasks) -> None:
        self._store = store
        self._summaries = summaries
        self._tasks = tasks
        self._requested: dict[str, None] = {}

    def start(
        self, instance: Instance, session: Session, history: Sequence[MessageWithParts], answered: asyncio.Event
    ) -> asyncio.Task[None] | None:
        """The task that sets the title of the session and of its first prompt's summary; None if no title is needed or one is
        requested already. `answered` is set when the session's turns are over. Logs a failure; the session keeps its default."""
        is_wanted = "title" in instance.agents and session.id not in self._requested
        context = title_context(session, history) if is_wanted else None
        if context is None:
            return None
        self._remember(session.id)
        task = self._tasks.start(session.id, "title", self._create(instance, context, answered))
        task.add_done_callback(lambda _: self._forget(session.id) if task.cancelled() else None)
        return task

    def _remember(self, session_id: str) -> None:
        self._requested[session_id] = None
        if len(self._requested) > MAX_REMEMBERED:
            self._forget(next(iter(self._requested)))

    def _forget(self, session_id: str) -> None:
        self._requested.pop(session_id, None)

    async def _create(self, instance: Instance, context: Sequence[MessageWithParts], answered: asyncio.Event) -> None:
        prompt = context[-1].info
        assert isinstance(prompt, UserMessage)
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_SECONDS):
                await answered.wait()
        if not is_default_title((await self._store.session(prompt.session_id)).title):
            return None
        with instance.resources.in_use():
            answer = await self._request(instance, prompt, context)
        if answer is None:
            return None
        text, usage = answer
        title = title_from_answer(text)
        if title is None:
            return await self._store_usage(instance, prompt, usage)
        try:
            await self._summaries.set_title(instance.location, prompt.session_id, prompt.id, title, usage)
        except NotFound:
            self._forget(prompt.session_id)
            await self._store_usage(instance, prompt, usage)
            raise

    async def _request(
        self, instance: Instance, prompt: UserMessage, context: Sequence[MessageWithParts]
    ) -> tuple[str, StepUsage] | None:
        try:
            model = _model(instance, prompt)
        except ProviderModelNotFoundError as missing:
            log.warning("no title for %s: %s", prompt.session_id, missing)
            return None
        agent = instance.agents["title"]
        request = ModelRequest(
            model=model,
            system=(agent.prompt or prompt_text("title"),),
            messages=(UserTurn((TextBlock(prompt_text("title-request")),)), *to_model_messages(context, model)),
            session_id=prompt.session_id,
            **request_options(instance, model, agent, prompt, small=True),
        )
        request = await hooks.request(instance, request, agent, prompt)
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            try:
                async with aclosing(instance.models.providers.connection_for(model).stream(request)) as events:
                    return await _read(events, model)
            except ProviderFailure as failure:
                if attempt == _MAX_ATTEMPTS:
                    log.warning("no title for %s: %s", prompt.session_id, failure)
        return None

    async def _store_usage(self, instance: Instance, prompt: UserMessage, usage: StepUsage) -> None:
        await self._store.write(prompt.session_id, instance.location.directory, lambda tx: tx.add_usage(usage))


async def _read(events: AsyncIterator[StreamEvent], model: Model) -> tuple[str, StepUsage]:
    """The model's text, and the usage of the request, which is in the ledger alone: no message of the session has it.

    Keeps no events: each of millions of tiny ones would take more memory than its text."""
    text, used = StringIO(), Usage()
    async for event in events:
        if isinstance(event, BlockDelta) and event.kind == "text":
            text.write(event.text)
        elif isinstance(event, Finish):
            used = event.usage
    tokens, cost = tokens_and_cost(used, model.cost)
    reference = ModelRef(provider_id=model.provider_id, model_id=model.id)
    return text.getvalue(), StepUsage(ids.ascending("part"), "title", reference, tokens, cost)


def title_context(session: Session, history: Sequence[MessageWithParts]) -> list[MessageWithParts] | None:
    """The messages that the title is generated from, up to the first user prompt whose answer did not fail. None for a session
    with a title, a child session, and a session without a prompt."""
    if session.parent_id is not None or not is_default_title(session.title):
        return None
    failed = {m.info.parent_id for m in history if isinstance(m.info, AssistantMessage) and m.info.error is not None}
    for position, message in enumerate(history):
        if _is_users_prompt(message) and message.info.id not in failed:
            return [*history[:position], _with_tasks_as_text(message)]
    return None


def title_from_answer(answer: str) -> str | None:
    """The first non-empty line outside `<think>`, at most MAX_LENGTH characters."""
    lines = (line.strip() for line in _THINKING.sub("", answer).splitlines())
    first = next((line for line in lines if line), None)
    return first[: MAX_LENGTH - 3] + "..." if first and len(first) > MAX_LENGTH else first


def _is_users_prompt(message: MessageWithParts) -> bool:
    """False for a prompt that the server has made: a compaction request, synthetic text."""
    made = (isinstance(part, CompactionPart) or (isinstance(part, TextPart) and part.synthetic) for part in message.parts)
    return isinstance(message.info, UserMessage) and not all(made)


def _with_tasks_as_text(prompt: MessageWithParts) -> MessageWithParts:
    """Replaces a prompt that contains only subtasks by their prompts."""
    tasks = [part for part in prompt.parts if isinstance(part, SubtaskPart)]
    if not tasks or len(tasks) < len(prompt.parts):
        return prompt
    text = TextPart(
        id=tasks[0].id, session_id=tasks[0].session_id, message_id=tasks[0].message_id, text="\n".join(t.prompt for t in tasks)
    )
    return MessageWithParts.model_construct(info=prompt.info, parts=[text])


def _model(instance: Instance, prompt: UserMessage) -> Model:
    """The title agent's model, else a small model of the prompt's provider, else the prompt's model."""
    wanted = instance.agents["title"].model
    if wanted:
        return instance.models.find(wanted)
    small = small_model(instance.models.connected, prompt.model.provider_id, instance.config.small_model)
    return small or instance.models.find(prompt.model)
