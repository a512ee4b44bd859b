"""Pruning: marks old tool outputs after a turn. Marked outputs stay stored but are no longer sent to the model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from app.context.tokens import estimate
from app.schema.message import MessageWithParts
from app.schema.part import Completed, ToolPart
from app.session.rows import part_row
from app.session.session_tx import SessionTx
from app.storage.writer import Row
from app.turn.turn_context import TurnContext
from app.util import clock
from app.workspace.instance import Instance

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


def is_on(instance: Instance) -> bool:
    return instance.config.compaction.prune is not False


@dataclass(frozen=True, slots=True)
class LastRequest:
    """The conversation of the newest request, and the tokens that a request may have."""

    history: Sequence[MessageWithParts]
    usable_tokens: int | None


@dataclass(frozen=True, slots=True)
class PruneLimits:
    protected: int = PROTECTED_TOKENS
    minimum: int = MINIMUM_TOKENS

    @classmethod
    def within(cls, usable_tokens: int | None) -> "PruneLimits":
        """`usable_tokens`: the tokens that a request may have; None if unknown."""
        if usable_tokens is None or usable_tokens >= SMALL_WINDOW:
            return cls()
        return cls(int(usable_tokens * PROTECTED_PART), int(usable_tokens * MINIMUM_PART))


def prunable_calls(history: Sequence[MessageWithParts], limits: PruneLimits) -> list[ToolPart]:
    """The calls whose outputs can be cleared, newest first; empty if that would free too little."""
    seen, gained = 0, 0
    found: list[ToolPart] = []
    for part in _prunable(history):
        tokens = estimate(_output(part))
        seen += tokens
        if seen > limits.protected:
            found.append(part)
            gained += tokens
    return found if gained > limits.minimum else []


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


def _output(part: ToolPart) -> str:
    return part.state.output if isinstance(part.state, Completed) else ""


async def run(ctx: TurnContext, asked: LastRequest) -> None:
    parts = prunable_calls(asked.history, PruneLimits.within(asked.usable_tokens)) if is_on(ctx.instance) else []
    if not parts:
        return
    pruned = list(map(_pruned, parts))

    def put(tx: SessionTx) -> None:
        for part in pruned:
            tx.put_part(part)

    await ctx.store.write(ctx.session_id, ctx.directory, put)


def _pruned(part: ToolPart) -> Row:
    assert isinstance(part.state, Completed)
    ended = part.state.time.model_copy(update={"compacted": clock.now_ms()})
    return part_row(part.model_copy(update={"state": part.state.model_copy(update={"time": ended})}))
