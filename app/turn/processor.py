"""Handles the events of a model's stream: one small handler for each kind of event."""

from collections.abc import Callable
from typing import Any

from app.provider import base
from app.schema.part import TextPart
from app.turn.part_writer import PartWriter
from app.turn.tool_calls import ToolCalls


class Processor:
    """Handles one attempt of a step. Calls `started` when the model begins to answer."""

    def __init__(self, writer: PartWriter, calls: ToolCalls, started: Callable[[], None]) -> None:
        self._writer = writer
        self._calls = calls
        self._started = started
        self.finish: base.Finish | None = None

    def handle(self, event: base.StreamEvent) -> None:
        _HANDLERS[type(event)](self, event)

    def _on_start(self, _event: base.StreamStart) -> None:
        self._started()

    def _on_text_start(self, event: base.TextStart) -> None:
        self._writer.start_text(event.id, event.metadata)

    def _on_reasoning_start(self, event: base.ReasoningStart) -> None:
        self._writer.start_reasoning(event.id, event.metadata)

    def _on_delta(self, event: base.TextDelta | base.ReasoningDelta) -> None:
        if event.text:
            self._writer.append_text(event.id, event.text)

    def _on_end(self, event: base.TextEnd | base.ReasoningEnd) -> TextPart | object:
        return self._writer.end_block(event.id, event.metadata)

    def _on_tool_input(self, event: base.ToolInputStart) -> None:
        self._writer.tool_pending(event.call_id, event.tool)

    def _on_tool_call(self, event: base.ToolCall) -> None:
        self._calls.start(event)

    def _on_invalid_call(self, event: base.InvalidToolCall) -> None:
        self._calls.start_invalid(event)

    def _on_finish(self, event: base.Finish) -> None:
        self.finish = event


_HANDLERS: dict[type[base.StreamEvent], Callable[[Processor, Any], object]] = {
    base.StreamStart: Processor._on_start,
    base.TextStart: Processor._on_text_start,
    base.TextDelta: Processor._on_delta,
    base.TextEnd: Processor._on_end,
    base.ReasoningStart: Processor._on_reasoning_start,
    base.ReasoningDelta: Processor._on_delta,
    base.ReasoningEnd: Processor._on_end,
    base.ToolInputStart: Processor._on_tool_input,
    base.ToolCall: Processor._on_tool_call,
    base.InvalidToolCall: Processor._on_invalid_call,
    base.Finish: Processor._on_finish,
}
