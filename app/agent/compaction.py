"""Summing a conversation up when the model's window is full, or when the user asks for it (behaviour §8)."""

from collections.abc import Sequence

from app.agent import stored_error
from app.agent.call_options import output_cap, request_options
from app.agent.decide import last_assistant
from app.agent.definitions import prompt_text
from app.agent.errors import TurnFailure, to_message_error
from app.agent.history import to_model_messages
from app.agent.instance import Instance
from app.agent.step import Outcome
from app.agent.system import assemble
from app.agent.turn_scope import TurnScope
from app.provider.base import ModelRequest, TextBlock, UserTurn
from app.schema.event import EventSessionCompacted, OfSession
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage
from app.schema.model import Model
from app.schema.part import CompactionPart, ModelRef, Span, TextPart, Tokens
from app.util import clock, ids

NO_SUMMARY = "The model did not sum the conversation up. It goes on with its whole history."


def is_overflow(instance: Instance, model: Model, tokens: Tokens) -> bool:
    """Whether the next request could go over what the model takes, its answer included."""
    if instance.config.compaction.auto is False or instance.flags.disable_autocompact or not model.limit.context:
        return False
    used = tokens.input + tokens.cache.read + tokens.output
    return used > (model.limit.input or model.limit.context - output_cap(model, instance.flags))


async def request(scope: TurnScope, agent: str, model: ModelRef, *, auto: bool) -> None:
    """Put the question for a summary into the conversation; the turn's loop answers it."""
    message = scope.new_user(agent, model)
    part = CompactionPart(id=ids.ascending("part"), session_id=scope.session_id, message_id=message.id, auto=auto)
    await scope.put_message(message, [part])


async def run(scope: TurnScope, user: UserMessage, history: Sequence[MessageWithParts], *, auto: bool) -> bool:
    """Answer the question for a summary. False when it failed: its error is stored, the session goes on as it was."""
    agent = scope.instance.agents["compaction"]
    model = scope.model(agent.model or user.model)
    message = scope.new_assistant(user, agent.name, ModelRef(provider_id=model.provider_id, model_id=model.id), summary=True)
    scope.put_message(message)

    async def summary_request() -> ModelRequest:
        return ModelRequest(
            model=model,
            system=assemble(agent, model, [], user),
            messages=(*to_model_messages(history, model), UserTurn((TextBlock(prompt_text("compaction-request")),))),
            session_id=scope.session_id,
            **request_options(scope.instance, model, agent, user),
        )

    outcome = await scope.ask_without_tools(message, model, agent, summary_request)
    if outcome is not Outcome.ANSWERED or not await _says_something(scope, message):
        if message.error is None:
            await stored_error.put(scope.store, message, to_message_error(TurnFailure(NO_SUMMARY)))
        return False
    if auto:
        await _ask_to_continue(scope, user)
    change = scope.store.change(scope.session_id, scope.directory)
    change.announce(EventSessionCompacted(properties=OfSession(session_id=scope.session_id)))
    await scope.store.commit(change)
    return True


async def _says_something(scope: TurnScope, message: AssistantMessage) -> bool:
    parts = (await scope.store.message(scope.session_id, message.id)).parts
    return any(isinstance(part, TextPart) and part.text.strip() for part in parts)


async def _ask_to_continue(scope: TurnScope, user: UserMessage) -> None:
    message, now = scope.new_user(user.agent, user.model), clock.now_ms()
    text = scope.synthetic_text(message, prompt_text("compaction-continue"))
    await scope.put_message(message, [text.model_copy(update={"time": Span(start=now, end=now)})])


def follows_compaction(history: Sequence[MessageWithParts]) -> bool:
    """The newest answer is a summary: if the next one is too much again, compacting did not help."""
    answer = last_assistant(history)
    return answer is not None and bool(answer.summary)
