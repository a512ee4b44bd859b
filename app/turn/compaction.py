"""Compaction: summarises a conversation if the model's window is full, or if the user asks for it."""

import asyncio
from collections.abc import Iterator, Sequence
from functools import partial

from app.providers.base import ContextOverflow, ModelMessage, ModelRequest, TextBlock, UserTurn
from app.providers.estimate import estimate, estimate_messages
from app.providers.shorten import cut_middle, shortened
from app.record.writer import Row
from app.schema.errors import unknown
from app.schema.event import EventSessionCompacted, OfSession
from app.schema.message import AssistantMessage, MessageWithParts, UserMessage
from app.schema.model import Agent, Model
from app.schema.part import CompactionPart, Completed, FilePart, ModelRef, Part, Span, TextPart, ToolPart
from app.sessions.live import compacting
from app.sessions.rows import part_row
from app.turn import ends, hooks
from app.turn.context import window
from app.turn.context.history import synthetic_text, to_model_messages
from app.turn.context.system import assemble
from app.turn.context.window import COMPACTION_AGENT, request_options
from app.turn.decide import is_final, newest
from app.turn.ends import to_message_error
from app.turn.part_writer import PartWriter
from app.turn.step import Step
from app.turn.tool_calls import ToolCalls
from app.turn.turn_context import TurnContext
from app.util import clock, ids
from app.workspace.agents import prompt_text

NO_SUMMARY = "The model returned no summary. The conversation goes on with its whole history."
NO_HELP = "The conversation does not fit the model's context window even after it was compacted."
MAX_FRUITLESS = 2
MAX_TRIES = 4
"""Requests for one summary. After an overflow, the next request has half as much of the conversation."""

QUESTION_TOKENS = 1_000
"""The size of a summary request without the conversation."""

REPEATED_TOKENS = 2_000
"""At most this much of an unanswered prompt is repeated after the summary."""


async def make_room(ctx: TurnContext, user: UserMessage) -> bool:
    """Requests a compaction as the next action. Stores an error and returns False if compacting no longer helps."""
    answer = newest(ctx.history, AssistantMessage)
    did_not_help = answer is not None and answer.summary  # the summary itself is followed by another overflow
    ctx.fruitless_compactions = ctx.fruitless_compactions + 1 if did_not_help else 0
    if ctx.fruitless_compactions >= MAX_FRUITLESS:
        await ctx.give_up(unknown(NO_HELP))
        return False
    await request(ctx, user.agent, user.model, auto=True, continues=user)
    return True


async def after_overflow(ctx: TurnContext, user: UserMessage, message: AssistantMessage, overflow: ContextOverflow) -> bool:
    """The provider rejected the conversation as too long before `message` began. Requests a compaction instead of the message,
    once in a turn; otherwise stores the error and returns False."""
    if ctx.has_overflowed or not window.compacts_automatically(ctx.instance):
        await ends.put_error(ctx.store, message, to_message_error(overflow))
        return False
    ctx.has_overflowed = True
    await request(ctx, user.agent, user.model, auto=True, continues=user, instead_of=message)
    return True


async def request(
    ctx: TurnContext,
    agent: str,
    model: ModelRef,
    *,
    auto: bool,
    continues: UserMessage | None = None,
    instead_of: AssistantMessage | None = None,
) -> None:
    """Adds a request for a summary to the conversation, which the turn's loop answers. Removes `instead_of`."""
    message = ctx.new_user(agent, model, continues=continues)
    part = CompactionPart(id=ids.ascending("part"), session_id=ctx.session_id, message_id=message.id, auto=auto)
    await ctx.write_message(message, [part], waits=True, instead_of=instead_of)


async def run(ctx: TurnContext, user: UserMessage, *, auto: bool) -> bool:
    """Answers a request for a summary. Stores an error and returns False on failure, and leaves the history as it is."""
    agent = ctx.instance.agent(COMPACTION_AGENT)
    wanted = agent.model or user.model
    model = ctx.instance.models.find(wanted)
    message = ctx.new_assistant(user, agent.name, wanted, summary=True)
    await ctx.write_message(message)
    await _show_compacting(ctx, since=clock.now_ms())
    try:
        step = await _summarise(ctx, message, model, agent, user)
    finally:
        await asyncio.shield(_show_compacting(ctx, since=None))
    if step.overflow or step.is_stopped or not is_final(message, None) or not step.has_text:
        if message.error is None:
            error = to_message_error(step.overflow) if step.overflow else unknown(NO_SUMMARY)
            await ends.put_error(ctx.store, message, error)
        return False
    if auto:
        await _ask_to_continue(ctx, user, _unanswered(ctx.history))
    event = EventSessionCompacted(properties=OfSession(session_id=ctx.session_id))
    await ctx.store.write(ctx.session_id, ctx.directory, lambda tx: tx.announce(event))
    return True


async def _summarise(ctx: TurnContext, message: AssistantMessage, model: Model, agent: Agent, user: UserMessage) -> Step:
    """Requests the summary; after each overflow again with less of the conversation."""
    messages = to_model_messages(ctx.history, model)
    room = window.usable_tokens(ctx.instance, model)
    for left in reversed(range(MAX_TRIES)):
        if room is not None:
            messages = shortened(messages, room - QUESTION_TOKENS)
        step = Step(ctx, ToolCalls(ctx, PartWriter(ctx.store, ctx.directory, message), {}, agent, model))
        await step.run(partial(_question, ctx, model, agent, user, messages))
        if step.overflow is None or not left:
            break
        room = estimate_messages(messages) // 2
    return step


async def _question(
    ctx: TurnContext, model: Model, agent: Agent, user: UserMessage, messages: Sequence[ModelMessage]
) -> ModelRequest:
    wanted = await hooks.compacting(ctx.instance.extensions.hooks, ctx.session_id)
    text = "\n\n".join([wanted.prompt or prompt_text("compaction-request"), *wanted.context])
    request = ModelRequest(
        model=model,
        system=assemble(agent, model, [], user),
        messages=(*messages, UserTurn((TextBlock(text),))),
        session_id=ctx.session_id,
        **request_options(ctx.instance, model, agent, user),
    )
    return await hooks.request(ctx.instance, request, agent, user)


async def _show_compacting(ctx: TurnContext, since: int | None) -> None:
    edit = partial(compacting, since=since)
    await ctx.store.write(ctx.session_id, ctx.directory, lambda tx: tx.edit(edit, touch=False))


async def _ask_to_continue(ctx: TurnContext, user: UserMessage, unanswered: str) -> None:
    message, now = ctx.new_user(user.agent, user.model, continues=user), clock.now_ms()
    text = prompt_text("compaction-continue")
    if unanswered:
        text += f"\n\nThe user's last message, which has had no answer yet:\n\n{cut_middle(unanswered, REPEATED_TOKENS)}"
    part = synthetic_text(message, text)
    await ctx.write_message(message, [part.model_copy(update={"time": Span(start=now, end=now)})], waits=True)


def _unanswered(history: Sequence[MessageWithParts]) -> str:
    """The user's texts since the newest answer, and the names of the files."""
    texts: list[str] = []
    for message in reversed(history):
        if isinstance(message.info, AssistantMessage):
            break
        texts[:0] = filter(None, map(_repeated_text, message.parts))
    return "\n\n".join(texts)


def _repeated_text(part: Part) -> str | None:
    match part:
        case TextPart(synthetic=None | False, ignored=None | False):
            return part.text
        case FilePart():
            name = part.filename or ("a file" if part.url.startswith("data:") else part.url)
            return f"[{name} ({part.mime}) was attached. You no longer see its content.]"
        case _:
            return None


PROTECTED_TOKENS = 40_000
"""The newest outputs, up to this many tokens, are kept."""

MINIMUM_TOKENS = 20_000
"""Pruning happens only if it frees more than this."""

SMALL_WINDOW = 2 * PROTECTED_TOKENS
PROTECTED_PART = 1 / 4
MINIMUM_PART = 1 / 8
"""The same limits as fractions of a small window."""

PROTECTED_TOOLS = ("skill",)
KEPT_TURNS = 2


def prune_limits(usable_tokens: int | None) -> tuple[int, int]:
    """How many tokens are kept, and how many must be freed. `usable_tokens`: as many as a request may have; None if unknown."""
    if usable_tokens is None or usable_tokens >= SMALL_WINDOW:
        return PROTECTED_TOKENS, MINIMUM_TOKENS
    return int(usable_tokens * PROTECTED_PART), int(usable_tokens * MINIMUM_PART)


def prunable_calls(history: Sequence[MessageWithParts], usable_tokens: int | None) -> list[ToolPart]:
    """The calls whose outputs can be cleared, newest first; empty if that would free too little."""
    protected, minimum = prune_limits(usable_tokens)
    seen, freed = 0, 0
    found: list[ToolPart] = []
    for part in _prunable(history):
        tokens = estimate(part.state.output) if isinstance(part.state, Completed) else 0
        seen += tokens
        if seen > protected:
            found.append(part)
            freed += tokens
    return found if freed > minimum else []


def _prunable(history: Sequence[MessageWithParts]) -> Iterator[ToolPart]:
    """Finished calls, newest first, from before the newest turns back to the last summary or the last pruning."""
    turns = 0
    for message in reversed(history):
        info = message.info
        turns += info.role == "user"
        if turns < KEPT_TURNS:
            continue
        if info.role == "assistant" and info.summary:
            return
        for part in reversed(message.parts):
            if part.type != "tool" or not isinstance(part.state, Completed) or part.tool in PROTECTED_TOOLS:
                continue
            if part.state.time.compacted is not None:
                return
            yield part


async def prune(ctx: TurnContext, history: Sequence[MessageWithParts], usable_tokens: int | None) -> None:
    """Marks old tool outputs after a turn: they stay stored, but are no longer sent to the model."""
    if ctx.instance.config.compaction.prune is False:
        return
    if pruned := list(map(_pruned, prunable_calls(history, usable_tokens))):
        await ctx.store.write(ctx.session_id, ctx.directory, lambda tx: tx.put_parts(*pruned))


def _pruned(part: ToolPart) -> Row:
    assert isinstance(part.state, Completed)
    ended = part.state.time.model_copy(update={"compacted": clock.now_ms()})
    return part_row(part.model_copy(update={"state": part.state.model_copy(update={"time": ended})}))
