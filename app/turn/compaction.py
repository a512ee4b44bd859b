"""Summing a conversation up when the model's window is full, or when the user asks for it (behaviour §8.2)."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial

from app.agent.definitions import prompt_text
from app.context import window
from app.context.call_options import request_options
from app.context.history import to_model_messages
from app.context.shortening import cut_middle, shortened
from app.context.system import assemble
from app.context.tokens import estimate_messages
from app.provider.base import ContextOverflow, ModelMessage, ModelRequest, TextBlock, UserTurn
from app.schema.agent import Agent
from app.schema.event import EventSessionCompacted, OfSession
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage
from app.schema.model import Model
from app.schema.part import CompactionPart, ModelRef, Span, TextPart
from app.session.status import compacting
from app.turn import hooks, stored_error
from app.turn.decide import last_assistant
from app.turn.errors import TurnFailure, to_message_error
from app.turn.step import Step, StepOutcome
from app.turn.turn_scope import TurnScope
from app.util import clock, ids

NO_SUMMARY = "The model did not sum the conversation up. It goes on with its whole history."
NO_HELP = "The conversation does not fit the model's context window even after it was compacted."
MAX_FRUITLESS = 2
MAX_TRIES = 4
"""Requests for one summary, each with half as much of the conversation as the one that was refused as too long."""

QUESTION_TOKENS = 1_000
"""What a request for a summary holds besides the conversation."""

REPEATED_TOKENS = 2_000
"""So much of a prompt that no answer was begun to is put to the model again behind the summary."""


class Compactions:
    """Those of one turn: they make room in the model's window until that stops helping."""

    def __init__(self, scope: TurnScope) -> None:
        self._scope = scope
        self._fruitless = 0
        self._was_refused = False

    async def make_room(self, user: UserMessage, history: Sequence[MessageWithParts]) -> bool:
        """Have the conversation summed up next. False when that has stopped helping, which is stored."""
        self._fruitless = self._fruitless + 1 if _follows_compaction(history) else 0
        if self._fruitless >= MAX_FRUITLESS:
            await stored_error.give_up(self._scope, history, NO_HELP)
            return False
        await request(self._scope, user.agent, user.model, auto=True)
        return True

    async def after_refusal(self, user: UserMessage, message: AssistantMessage, refusal: ContextOverflow) -> bool:
        """The provider found the conversation too long for `message` to be begun: once in a turn it is summed up instead, then
        the refusal is stored, and False returned."""
        if self._was_refused or not window.is_compacted(self._scope.instance):
            await stored_error.put(self._scope.store, message, to_message_error(refusal))
            return False
        self._was_refused = True
        await request(self._scope, user.agent, user.model, auto=True, instead_of=message)
        return True


def _follows_compaction(history: Sequence[MessageWithParts]) -> bool:
    """The newest answer is a summary: if the next one is too much again, compacting did not help."""
    answer = last_assistant(history)
    return answer is not None and bool(answer.summary)


async def request(
    scope: TurnScope, agent: str, model: ModelRef, *, auto: bool, instead_of: AssistantMessage | None = None
) -> None:
    """Put the question for a summary into the conversation; the turn's loop answers it. `instead_of` goes."""
    message = scope.new_user(agent, model)
    change = scope.store.change(scope.session_id, scope.directory)
    if instead_of is not None:
        change.remove_message(instead_of.id)
    change.put_message(message)
    change.put_part(CompactionPart(id=ids.ascending("part"), session_id=scope.session_id, message_id=message.id, auto=auto))
    await scope.store.commit(change)


async def run(scope: TurnScope, user: UserMessage, history: Sequence[MessageWithParts], *, auto: bool) -> bool:
    """Answer the question for a summary. False when it failed: its error is stored, the session goes on as it was."""
    agent = scope.instance.agents["compaction"]
    model = scope.model(agent.model or user.model)
    message = scope.new_assistant(user, agent.name, ModelRef(provider_id=model.provider_id, model_id=model.id), summary=True)
    await scope.put_message(message)
    async with _shown_as_compacting(scope):
        outcome, step = await _summarise(scope, message, model, agent, user, history)
    if outcome is not StepOutcome.ANSWERED or not await _says_something(scope, message):
        if message.error is None:
            await stored_error.put(scope.store, message, to_message_error(step.refusal or TurnFailure(NO_SUMMARY)))
        return False
    if auto:
        await _ask_to_continue(scope, user, _unanswered(history))
    change = scope.store.change(scope.session_id, scope.directory)
    change.announce(EventSessionCompacted(properties=OfSession(session_id=scope.session_id)))
    await scope.store.commit(change)
    return True


async def _summarise(
    scope: TurnScope,
    message: AssistantMessage,
    model: Model,
    agent: Agent,
    user: UserMessage,
    history: Sequence[MessageWithParts],
) -> tuple[StepOutcome, Step]:
    """Ask for the summary, of less of the conversation each time that it is refused as too long."""
    messages = to_model_messages(history, model)
    room = window.usable_tokens(scope.instance, model)
    for left in reversed(range(MAX_TRIES)):
        if room is not None:
            messages = shortened(messages, room - QUESTION_TOKENS)
        step = scope.step(message, model)
        outcome = await scope.ask_without_tools(step, model, agent, await _question(scope, model, agent, user, messages))
        if outcome is not StepOutcome.REFUSED or not left:
            break
        room = estimate_messages(messages) // 2
    return outcome, step


async def _question(
    scope: TurnScope, model: Model, agent: Agent, user: UserMessage, messages: Sequence[ModelMessage]
) -> ModelRequest:
    wanted = await hooks.compacting(scope.instance.hooks, scope.session_id)
    text = "\n\n".join([wanted.prompt or prompt_text("compaction-request"), *wanted.context])
    request = ModelRequest(
        model=model,
        system=assemble(agent, model, [], user),
        messages=(*messages, UserTurn((TextBlock(text),))),
        session_id=scope.session_id,
        **request_options(scope.instance, model, agent, user),
    )
    return await hooks.request(scope.instance, request, agent, user)


@asynccontextmanager
async def _shown_as_compacting(scope: TurnScope) -> AsyncIterator[None]:
    await _set_compacting(scope, clock.now_ms())
    try:
        yield
    finally:
        await asyncio.shield(_set_compacting(scope, None))


async def _set_compacting(scope: TurnScope, since: int | None) -> None:
    await scope.store.update_session(scope.session_id, scope.directory, partial(compacting, since=since), touch=False)


async def _says_something(scope: TurnScope, message: AssistantMessage) -> bool:
    parts = (await scope.store.message(scope.session_id, message.id)).parts
    return any(isinstance(part, TextPart) and part.text.strip() for part in parts)


async def _ask_to_continue(scope: TurnScope, user: UserMessage, unanswered: str) -> None:
    message, now = scope.new_user(user.agent, user.model), clock.now_ms()
    said = prompt_text("compaction-continue")
    if unanswered:
        said += f"\n\nThe user's last message, which has had no answer yet:\n\n{cut_middle(unanswered, REPEATED_TOKENS)}"
    text = scope.synthetic_text(message, said)
    await scope.put_message(message, [text.model_copy(update={"time": Span(start=now, end=now)})])


def _unanswered(history: Sequence[MessageWithParts]) -> str:
    """What the user wrote since the newest answer."""
    texts: list[str] = []
    for message in reversed(history):
        if isinstance(message.info, AssistantMessage):
            break
        texts[:0] = [part.text for part in message.parts if isinstance(part, TextPart) and not (part.synthetic or part.ignored)]
    return "\n\n".join(texts)
