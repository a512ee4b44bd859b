"""The interface of observers: a record of each turn, model call and tool call, filled in until it ends. The observed work happens
within the context managers; its record says how it ended."""

import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from app.schema.errors import MessageError
from app.schema.part import Tokens


class TurnEnd(StrEnum):
    ANSWERED = "answered"
    FAILED = "failed"
    REJECTED = "rejected"
    """The user rejected a permission or a question."""
    ABORTED = "aborted"
    HANDED_OVER = "handed_over"
    """Another server goes on with the turn."""


class ModelCallEnd(StrEnum):
    ANSWERED = "answered"
    CUT_SHORT = "cut_short"
    """The stream ended without a finish."""
    FAILED = "failed"
    ABORTED = "aborted"


class ToolCallEnd(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    DENIED = "denied"
    """A rule or the user denied the permission."""
    ABORTED = "aborted"


@dataclass(slots=True)
class TurnRecord:
    """`failure`: the error that ended the newest step. `rejected`: it ended with a call that the user rejected."""

    session_id: str = ""
    agent: str = ""
    provider: str = ""
    model: str = ""
    failure: MessageError | None = None
    rejected: bool = False
    end: TurnEnd | None = None
    began: float = field(default_factory=time.perf_counter)

    def ended(self) -> TurnEnd:
        if self.end is not None:
            return self.end
        if self.failure is not None:
            return TurnEnd.FAILED
        return TurnEnd.REJECTED if self.rejected else TurnEnd.ANSWERED


@dataclass(slots=True)
class ModelContents:
    """The texts of a call, by the GenAI conventions; kept only for observers that capture them."""

    system: list[dict[str, Any]]
    inputs: list[dict[str, Any]]
    outputs: list[dict[str, Any]] = field(default_factory=list)
    """The parts of the answer."""


@dataclass(slots=True)
class ModelCallRecord:
    """`headers`: added to the request by an observer. `first_chunk`: when the answer began."""

    session_id: str
    provider: str
    model: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    contents: ModelContents | None = None
    headers: dict[str, str] = field(default_factory=dict)
    first_chunk: float | None = None
    finish: str | None = None
    tokens: Tokens = field(default_factory=Tokens)
    cost: float = 0.0
    error: str | None = None
    end: ModelCallEnd = ModelCallEnd.ABORTED
    began: float = field(default_factory=time.perf_counter)


@dataclass(slots=True)
class ToolCallRecord:
    session_id: str
    tool: str
    call_id: str
    arguments: Mapping[str, Any]
    result: str = ""
    error: str | None = None
    end: ToolCallEnd = ToolCallEnd.ABORTED

    def completed(self, result: str) -> None:
        self.end, self.result = ToolCallEnd.COMPLETED, result

    def failed(self, error: Exception, end: ToolCallEnd = ToolCallEnd.FAILED) -> None:
        self.end, self.error, self.result = end, type(error).__name__, str(error)


_NOTHING: AbstractContextManager[None] = nullcontext()


class Observer:
    """The base class observes nothing."""

    watches_models = False
    """Whether it observes model calls, whose streams are then read along."""
    captures_contents = False
    """Whether records have the texts of calls."""

    def turn(self, record: TurnRecord) -> AbstractContextManager[None]:
        return _NOTHING

    def model_call(self, record: ModelCallRecord) -> AbstractContextManager[None]:
        return _NOTHING

    def tool_call(self, record: ToolCallRecord) -> AbstractContextManager[None]:
        return _NOTHING

    def wait(self, kind: str) -> AbstractContextManager[None]:
        """The wait for the user's answer to a pending request of that kind."""
        return _NOTHING

    def committed(self, seconds: float, changes: int) -> None:
        """A batch was stored."""

    def cut_off(self) -> None:
        """A client of an event stream read too slowly."""


NOBODY = Observer()


class Observers(Observer):
    """Calls all observers, in order."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self.watches_models = any(each.watches_models for each in observers)
        self.captures_contents = any(each.captures_contents for each in observers)

    def turn(self, record: TurnRecord) -> AbstractContextManager[None]:
        return _entered(*(each.turn(record) for each in self._observers))

    def model_call(self, record: ModelCallRecord) -> AbstractContextManager[None]:
        return _entered(*(each.model_call(record) for each in self._observers))

    def tool_call(self, record: ToolCallRecord) -> AbstractContextManager[None]:
        return _entered(*(each.tool_call(record) for each in self._observers))

    def wait(self, kind: str) -> AbstractContextManager[None]:
        return _entered(*(each.wait(kind) for each in self._observers))

    def committed(self, seconds: float, changes: int) -> None:
        for each in self._observers:
            each.committed(seconds, changes)

    def cut_off(self) -> None:
        for each in self._observers:
            each.cut_off()


@contextmanager
def _entered(*contexts: AbstractContextManager[None]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield
