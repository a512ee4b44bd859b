"""Who is told what the server does. What is observed happens within the context managers; its record says how it ended."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from app.telemetry.records import ModelCallRecord, ToolCallRecord, TurnRecord

_NOTHING: AbstractContextManager[None] = nullcontext()


class Observer:
    """This one is for when nobody wants to know."""

    watches_models = False
    """Whether it is to be told of model calls, whose streams are read along for it."""
    captures_contents = False
    """Whether records hold what was said."""

    def turn(self, record: TurnRecord) -> AbstractContextManager[None]:
        return _NOTHING

    def model_call(self, record: ModelCallRecord) -> AbstractContextManager[None]:
        return _NOTHING

    def tool_call(self, record: ToolCallRecord) -> AbstractContextManager[None]:
        return _NOTHING

    def wait(self, kind: str) -> AbstractContextManager[None]:
        """For the user's answer to a pending request of that kind."""
        return _NOTHING

    def committed(self, seconds: float, changes: int) -> None:
        """A batch was stored."""

    def cut_off(self) -> None:
        """A client of an event stream read too slowly."""


NOBODY = Observer()


class Observers(Observer):
    """All of them are told, the first one first."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers
        self.watches_models = any(each.watches_models for each in observers)
        self.captures_contents = any(each.captures_contents for each in observers)

    def turn(self, record: TurnRecord) -> AbstractContextManager[None]:
        return _within(*(each.turn(record) for each in self._observers))

    def model_call(self, record: ModelCallRecord) -> AbstractContextManager[None]:
        return _within(*(each.model_call(record) for each in self._observers))

    def tool_call(self, record: ToolCallRecord) -> AbstractContextManager[None]:
        return _within(*(each.tool_call(record) for each in self._observers))

    def wait(self, kind: str) -> AbstractContextManager[None]:
        return _within(*(each.wait(kind) for each in self._observers))

    def committed(self, seconds: float, changes: int) -> None:
        for each in self._observers:
            each.committed(seconds, changes)

    def cut_off(self) -> None:
        for each in self._observers:
            each.cut_off()


@contextmanager
def _within(*contexts: AbstractContextManager[None]) -> Iterator[None]:
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield
