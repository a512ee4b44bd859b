"""A provider without a language model: plays the turns of a script, or answers by rules (`scripted_rules.py`).

A turn is a list of steps, written as objects:

    {"text": "…", "chunks": 4, "delay": 0}    streamed text, in so many pieces, so many seconds before each
    {"reasoning": "…", "chunks": 4, "delay": 0}
    {"tool": name, "args": {…}, "id": "…"}    a call; "raw": "…" instead of args sends that text as the arguments
    {"sleep": seconds}
    {"wait": asyncio.Event}                   in Python only: goes on when the event is set
    {"status": 429, "headers": {…}, "body": …, "message": "…"}   the request fails with this HTTP answer
    {"cut": true}                             the stream ends here without a finish
    {"usage": {"input": 100, "output": 20, "reasoning": 0, "cache_read": 0, "cache_write": 0}}
    {"finish": "stop" | "length" | …}         default: tool-calls after a call, else stop

A script file, named by OPENSESSION_SCRIPT, is `{"turns": [turn, …]}`. Each request of a model plays the next turn; a model with
`title` in its id answers with a title and takes none.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args

import orjson

from app.providers.answers import read_call
from app.providers.base import (
    ApiFailure,
    BlockDelta,
    BlockEnd,
    BlockKind,
    BlockStart,
    Finish,
    FinishReason,
    ModelRequest,
    StreamEvent,
    StreamStart,
    ToolCall,
    ToolInputStart,
    Usage,
)
from app.providers.errors import is_retryable, refused
from app.util import ids

TITLE = "A scripted title"
DEFAULT_USAGE = Usage(input=100, output=20)


@dataclass(frozen=True, slots=True)
class Say:
    """Text or reasoning in at most `chunks` pieces of equal length, the last one shorter, `delay` seconds before each."""

    text: str
    kind: BlockKind = "text"
    chunks: int = 4
    delay: float = 0


@dataclass(frozen=True, slots=True)
class Call:
    """`raw` replaces the JSON of `args`; anything but a JSON object becomes an InvalidToolCall."""

    tool: str
    args: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class Sleep:
    seconds: float


@dataclass(frozen=True, slots=True)
class Wait:
    event: asyncio.Event


@dataclass(frozen=True, slots=True)
class Fail:
    """The request fails before anything is streamed, like an HTTP error, wherever the step is in the turn."""

    status: int
    headers: Mapping[str, str] | None = None
    body: Any = None
    message: str = "scripted"


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection breaks: the open block ends and no Finish follows."""


@dataclass(frozen=True, slots=True)
class SetUsage:
    """Sets some fields of Usage; the others keep their default."""

    fields: Mapping[str, int]

    def __post_init__(self) -> None:
        Usage(**self.fields)


@dataclass(frozen=True, slots=True)
class SetFinish:
    reason: FinishReason

    def __post_init__(self) -> None:
        if self.reason not in get_args(FinishReason):
            raise ValueError(f"a finish is one of {', '.join(get_args(FinishReason))}")


ScriptedStep = Say | Call | Sleep | Wait | Fail | Cut | SetUsage | SetFinish
ScriptedTurn = Sequence[ScriptedStep]
ScriptedAnswer = Callable[[ModelRequest], ScriptedTurn]
"""Returns the answer to a request."""


class ScriptError(ValueError):
    """The script is invalid."""


class ScriptedProvider:
    """Plays `turns` in order; then `otherwise` answers. `title` answers for title models. `requests` has all requests, if they
    are kept."""

    def __init__(
        self,
        turns: Iterable[Sequence[ScriptedStep | Mapping[str, Any]]] = (),
        *,
        otherwise: ScriptedAnswer | None = None,
        title: ScriptedAnswer | None = None,
        keeps_requests: bool = True,
    ) -> None:
        self.requests: list[ModelRequest] = []
        self._keeps_requests = keeps_requests
        self._turns: deque[ScriptedTurn] = deque(parse_turn(turn) for turn in turns)
        self._otherwise = otherwise or (lambda _: (Say("ok"),))
        self._title = title or (lambda _: (Say(TITLE),))

    def add(self, *turns: Sequence[ScriptedStep | Mapping[str, Any]]) -> None:
        self._turns.extend(parse_turn(turn) for turn in turns)

    def stream(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        if self._keeps_requests:
            self.requests.append(request)
        if "title" in request.model.id:
            return play(self._title(request))
        return play(self._turns.popleft() if self._turns else self._otherwise(request))

    async def close(self) -> None:
        """Does nothing, as nothing is open."""


def load_script(path: Path) -> list[ScriptedTurn]:
    """The turns of a script file. Raises ScriptError."""
    try:
        script = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise ScriptError(f"The script {path} cannot be read: {error}") from error
    if not isinstance(script, dict) or not isinstance(script.get("turns"), list):
        raise ScriptError(f'The script {path} must be an object with "turns": a list of turns, each a list of steps')
    return [parse_turn(turn) for turn in script["turns"]]


def parse_turn(turn: Sequence[ScriptedStep | Mapping[str, Any]]) -> ScriptedTurn:
    if isinstance(turn, str | Mapping) or not isinstance(turn, Sequence):
        raise ScriptError(f"A turn is a list of steps, not {turn!r}")
    return tuple(step if isinstance(step, ScriptedStep) else parse_step(step) for step in turn)


def parse_step(step: Mapping[str, Any]) -> ScriptedStep:
    """The key of a step names its kind. Raises ScriptError."""
    if not isinstance(step, Mapping):
        raise ScriptError(f"A step is an object, not {step!r}")
    kind = next((key for key in _STEPS if key in step), None)
    if kind is None:
        raise ScriptError(f"{dict(step)!r} is no step; a step has one of the keys {', '.join(_STEPS)}")
    try:
        return _STEPS[kind](step[kind], **{key: value for key, value in step.items() if key != kind})
    except (TypeError, ValueError) as error:
        raise ScriptError(f"The step {dict(step)!r} is not understood: {error}") from error


_STEPS: dict[str, Callable[..., ScriptedStep]] = {
    "text": Say,
    "reasoning": partial(Say, kind="reasoning"),
    "tool": Call,
    "sleep": Sleep,
    "wait": Wait,
    "status": Fail,
    "cut": lambda _: Cut(),
    "usage": SetUsage,
    "finish": SetFinish,
}


async def play(turn: ScriptedTurn) -> AsyncGenerator[StreamEvent, None]:
    """The turn as a stream. Raises ApiFailure for a turn with a Fail."""
    for step in turn:
        if isinstance(step, Fail):
            raise _failure(step)
    yield StreamStart()
    reason: FinishReason | None = None
    usage, calls = DEFAULT_USAGE, False
    for number, step in enumerate(turn):
        match step:
            case Cut():
                return
            case Call():
                calls = True
            case SetFinish(stated):
                reason = reason or stated
            case SetUsage(fields):
                usage = replace(usage, **fields)
        async for event in _play_step(step, str(number)):
            yield event
    yield Finish(reason or ("tool-calls" if calls else "stop"), usage)


async def _play_step(step: ScriptedStep, block_id: str) -> AsyncGenerator[StreamEvent, None]:
    match step:
        case Say(text, kind, chunks, delay):
            size = max(1, -(-len(text) // max(1, chunks)))
            yield BlockStart(kind, block_id)
            for position in range(0, len(text), size):
                if delay:
                    await asyncio.sleep(delay)
                yield BlockDelta(kind, block_id, text[position : position + size])
            yield BlockEnd(kind, block_id)
        case Call(tool, args, id_, raw):
            call_id = id_ or ids.call_id()
            yield ToolInputStart(call_id, tool)
            yield ToolCall(call_id, tool, dict(args)) if raw is None else read_call(call_id, tool, raw)
        case Sleep(seconds):
            await asyncio.sleep(seconds)
        case Wait(event):
            await event.wait()


def _failure(step: Fail) -> ApiFailure:
    body = step.body if step.body is None or isinstance(step.body, str) else orjson.dumps(step.body).decode()
    retryable = is_retryable(step.status)
    return refused(step.message, status=step.status, retryable=retryable, headers=dict(step.headers or {}), body=body)
