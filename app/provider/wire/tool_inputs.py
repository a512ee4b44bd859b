"""Collects the streamed arguments of tool calls."""

from dataclasses import dataclass
from typing import Any

from app.provider.base import AnswerTooLarge, InvalidToolCall, Metadata, ToolCall, ToolInputStart
from app.provider.wire.lenient_json import parse_json
from app.util import ids
from app.util.bounded_answer import AnswerPassedLimit, require_few_values

MAX_GATHERED_BYTES = 8 * 1024 * 1024
_OVERHEAD = 10
"""Bytes that a piece takes besides its text, at the least."""


class GatheredText:
    """Counts what is held of an answer until it is whole: arguments, names and ids of calls, signatures."""

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
class _ToolInput:
    given_id: str | None
    call_id: str
    tool: str
    raw: list[str]


class ToolInputs:
    """Calls by the key of the wire format (an index)."""

    def __init__(self, gathered: GatheredText) -> None:
        self._gathered = gathered
        self._open: dict[int, _ToolInput] = {}
        self._ids: set[str] = set()

    def __contains__(self, key: int) -> bool:
        return key in self._open

    def given_id(self, key: int) -> str | None:
        """None as long as the server has given none."""
        return self._open[key].given_id

    def tool(self, key: int) -> str:
        """Empty as long as the server has given no name."""
        return self._open[key].tool

    def is_complete(self, key: int) -> bool:
        """Whether its arguments are an object, with nothing missing."""
        raw = "".join(self._open[key].raw)
        return bool(raw.strip()) and isinstance(read_call("", "", raw), ToolCall)

    def start(self, key: int, given_id: str | None, tool: str) -> list[ToolInputStart]:
        """Emits the event once the name is known: some servers send it after the id, some send no id at all, or later."""
        if key not in self._open:
            self._gathered.add(given_id or "")
            self._open[key] = _ToolInput(None, self._unused(given_id or ids.call_id()), "", [])
        call = self._open[key]
        call.given_id = call.given_id or given_id or None
        if call.tool or not tool:
            return []
        call.tool = tool
        return [ToolInputStart(call.call_id, tool)]

    def _unused(self, call_id: str) -> str:
        """Replaces an id that is taken: some servers give several calls the same id, which must identify a call."""
        unused = ids.call_id() if call_id in self._ids else call_id
        self._ids.add(unused)
        return unused

    def append(self, key: int, fragment: str) -> None:
        self._gathered.add(fragment)
        self._open[key].raw.append(fragment)

    def finish(self, key: int) -> ToolCall | InvalidToolCall:
        call = self._open.pop(key)
        return read_call(call.call_id, call.tool, "".join(call.raw))

    def finish_all(self) -> list[ToolCall | InvalidToolCall]:
        """All calls that have started."""
        return [self.finish(key) for key, call in tuple(self._open.items()) if call.tool]
