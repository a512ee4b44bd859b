"""The parts of answers in all wire formats: open blocks, the arguments of calls; and the limits of an answer's size."""

from dataclasses import dataclass
from typing import Any

import orjson

from app.providers.base import (
    AnswerTooLarge,
    BlockDelta,
    BlockEnd,
    BlockKind,
    BlockStart,
    Finish,
    InvalidToolCall,
    Metadata,
    StreamEvent,
    StreamStart,
    ToolCall,
    ToolInputStart,
)
from app.util import ids
from app.util.bounds import AnswerPassedLimit, parse_json, require_few_values


class Blocks:
    def __init__(self) -> None:
        self._open: dict[str, BlockKind] = {}

    def start(self, kind: BlockKind, block_id: str, metadata: Metadata | None = None) -> list[StreamEvent]:
        if block_id in self._open:
            return []
        self._open[block_id] = kind
        return [BlockStart(kind, block_id, metadata)]

    def delta(self, kind: BlockKind, block_id: str, text: str) -> list[StreamEvent]:
        """Starts the block if it is not open. No events for empty text."""
        if not text:
            return []
        delta = BlockDelta(kind, block_id, text)
        return [delta] if block_id in self._open else [*self.start(kind, block_id), delta]

    def end(self, block_id: str, metadata: Metadata | None = None) -> list[StreamEvent]:
        kind = self._open.pop(block_id, None)
        return [BlockEnd(kind, block_id, metadata)] if kind else []

    def end_all(self) -> list[StreamEvent]:
        return [event for block_id in tuple(self._open) for event in self.end(block_id)]


class TurningBlocks:
    """For wire formats without block boundaries: text ends an open reasoning block, and reasoning an open text block."""

    def __init__(self) -> None:
        self._blocks = Blocks()
        self._kind: BlockKind | None = None
        self._count = 0
        self._id = ""

    def append(self, kind: BlockKind, text: str) -> list[StreamEvent]:
        if not text:
            return []
        ended: list[StreamEvent] = []
        if kind != self._kind:
            ended = self.end()
            self._kind = kind
            self._count += 1
            self._id = f"{kind}-{self._count}"
        return ended + self._blocks.delta(kind, self._id, text)

    def end(self) -> list[StreamEvent]:
        self._kind = None
        return self._blocks.end_all()


MAX_GATHERED_BYTES = 8 * 1024 * 1024
_OVERHEAD = 10
"""Bytes that a piece takes at least, besides its text."""


class GatheredText:
    """Counts what is held of an answer until it is complete: arguments, names and ids of calls, signatures."""

    def __init__(self) -> None:
        self._bytes = 0

    def add(self, text: str) -> None:
        """Raises AnswerTooLarge."""
        self._bytes += len(text) + _OVERHEAD
        if self._bytes > MAX_GATHERED_BYTES:
            raise AnswerTooLarge(f"The answer's arguments and signatures have more than {MAX_GATHERED_BYTES} bytes")


def read_call(call_id: str, tool: str, raw: str, metadata: Metadata | None = None) -> ToolCall | InvalidToolCall:
    """Empty text means an empty object."""
    try:
        require_few_values(raw.encode(errors="replace"))
        value: Any = parse_json(raw) if raw.strip() else {}
    except AnswerPassedLimit as passed:
        return InvalidToolCall(call_id, tool, raw, str(passed))
    except ValueError as error:
        return InvalidToolCall(call_id, tool, raw, f"The arguments are not valid JSON: {error}")
    if not isinstance(value, dict):
        return InvalidToolCall(call_id, tool, raw, "The arguments are JSON, but not an object")
    return ToolCall(call_id, tool, value, metadata)


@dataclass(slots=True)
class ToolInput:
    """`given_id`: None until the server has given an id; `tool`: empty until it has given a name; `raw`: the arguments so far."""

    given_id: str | None
    call_id: str
    tool: str
    raw: list[str]

    def is_complete(self) -> bool:
        """Whether the arguments are a complete object."""
        raw = "".join(self.raw)
        return bool(raw.strip()) and isinstance(read_call("", "", raw), ToolCall)


class ToolInputs:
    """Calls by their key in the wire format (an index)."""

    def __init__(self, gathered: GatheredText) -> None:
        self._gathered = gathered
        self.open: dict[int, ToolInput] = {}
        self._ids: set[str] = set()

    def start(self, key: int, given_id: str | None, tool: str) -> list[ToolInputStart]:
        """Emits the event once the name is known: some servers send it after the id, some send no id at all, or later."""
        if key not in self.open:
            self._gathered.add(given_id or "")
            call_id = given_id or ids.call_id()
            if call_id in self._ids:  # some servers give several calls the same id, which must identify a call
                call_id = ids.call_id()
            self._ids.add(call_id)
            self.open[key] = ToolInput(None, call_id, "", [])
        call = self.open[key]
        call.given_id = call.given_id or given_id or None
        if call.tool or not tool:
            return []
        call.tool = tool
        return [ToolInputStart(call.call_id, tool)]

    def append(self, key: int, fragment: str) -> None:
        self._gathered.add(fragment)
        self.open[key].raw.append(fragment)

    def finish(self, key: int) -> ToolCall | InvalidToolCall:
        call = self.open.pop(key)
        return read_call(call.call_id, call.tool, "".join(call.raw))


# The size of an answer.


MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Ten times what models write at most. An answer takes many times its size while it is stored and announced."""
MAX_BLOCKS = 1000
"""Blocks of text and reasoning in one answer."""
MAX_CALLS = 200


class AnswerSize:
    """The size of an answer so far: `most_bytes` of text, reasoning and arguments."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = min(most_bytes, MAX_ANSWER_BYTES)
        self._bytes = self._blocks = self._calls = 0

    def add(self, event: StreamEvent) -> None:
        """Raises AnswerTooLarge."""
        self._bytes += _size(event)
        self._blocks += isinstance(event, BlockStart)
        self._calls += isinstance(event, ToolInputStart)
        if self._bytes > self._most_bytes:
            raise AnswerTooLarge(f"The answer has more than {self._most_bytes} bytes of text, reasoning and arguments")
        if self._blocks > MAX_BLOCKS:
            raise AnswerTooLarge(f"The answer has more than {MAX_BLOCKS} blocks of text and reasoning")
        if self._calls > MAX_CALLS:
            raise AnswerTooLarge(f"The answer has more than {MAX_CALLS} tool calls")


def _size(event: StreamEvent) -> int:
    match event:
        case BlockDelta():
            return text_bytes(event.text)
        case ToolInputStart():
            return text_bytes(event.call_id) + text_bytes(event.tool)
        case ToolCall():
            return len(orjson.dumps(event.input)) + _metadata_size(event.metadata)
        case InvalidToolCall():
            return text_bytes(event.raw)
        case BlockStart() | BlockEnd():
            return text_bytes(event.id) + _metadata_size(event.metadata)
        case Finish():
            return _metadata_size(event.metadata)
        case StreamStart():
            return 0


def _metadata_size(metadata: Metadata | None) -> int:
    return len(orjson.dumps(metadata)) if metadata else 0


def text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode(errors="replace"))
