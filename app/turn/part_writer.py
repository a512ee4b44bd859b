"""Accumulates a stream into the parts of one assistant message and stores them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from app.provider.base import Metadata
from app.schema.file import FilePart
from app.schema.message import AssistantMessage
from app.schema.part import Part, PatchPart, ReasoningPart, Span, StepFinishPart, StepStartPart, TextPart, Tokens, ToolPart
from app.schema.tool_state import Completed, CompletedTime, Ended, Failed, Pending, Running, Started
from app.session.change import SessionChange
from app.session.growing_text import GrowingText
from app.session.step_usage import StepUsage
from app.session.store import Store
from app.storage.writer import Chain
from app.tool.base import ToolResult
from app.util import clock, ids

ABORTED = "Tool execution aborted"


class PartWriter:
    """Enqueues writes without waiting. They form a chain: after one that fails, none is stored or announced. `stored`, which
    waits for them, and `raise_failure`, which does not, raise that failure until `finish_open_parts` writes the lost values
    again."""

    def __init__(self, store: Store, directory: str, message: AssistantMessage) -> None:
        self._store = store
        self._directory = directory
        self.message = message
        self._open: dict[str, GrowingText] = {}
        self._tools: dict[str, ToolPart] = {}
        self._attempt: list[Part] = []
        self._chain = Chain()
        self._newest_write: asyncio.Future[None] | None = None
        self._unstored: dict[str, tuple[Part | AssistantMessage, asyncio.Future[None]]] = {}
        """By id, the values that are not stored yet, with their newest write."""
        self._withdrawn: list[Part] = []
        self._is_counted = False
        """Whether the ledger has the step."""

    @property
    def tools(self) -> list[ToolPart]:
        return list(self._tools.values())

    def has_text(self) -> bool:
        self._join_texts()
        return any(isinstance(part, TextPart) and part.text.strip() for part in self._attempt)

    def answer_text(self) -> str:
        """The text and reasoning of the answer."""
        self._join_texts()
        return "".join(part.text for part in self._attempt if isinstance(part, TextPart | ReasoningPart))

    def _join_texts(self) -> list[TextPart | ReasoningPart]:
        """The parts of the open blocks, with their text up to date."""
        return [growing.joined() for growing in self._open.values()]

    async def stored(self) -> None:
        """Waits until everything enqueued so far is stored. Raises StorageError."""
        if self._newest_write is not None:
            await self._newest_write  # of a chain, which is stored in its order
        self.raise_failure()

    def raise_failure(self) -> None:
        if self._chain.failure is not None:
            raise self._chain.failure

    def put(self, part: Part) -> None:
        change = self._change()
        self._add_part(change, part)
        self._post(change, [part])

    def _add_part(self, change: SessionChange, part: Part) -> None:
        change.put_part(part)
        if isinstance(part, StepFinishPart):
            change.count_step(StepUsage.of(self.message, part))
            self._is_counted = True

    def enqueue_message(self) -> None:
        change = self._change()
        self._add_message(change)
        self._post(change, [self.message])

    def _add_message(self, change: SessionChange) -> None:
        change.put_message(self.message)
        if self.message.time.completed is not None and not self._is_counted:
            change.add_usage(StepUsage.of(self.message))

    def _change(self) -> SessionChange:
        return self._store.change(self.message.session_id, self._directory, self._chain)

    def _post(self, change: SessionChange, values: Sequence[Part | AssistantMessage] = ()) -> asyncio.Future[None]:
        write = self._newest_write = self._store.post(change)
        self._unstored.update({value.id: (value, write) for value in values})
        write.add_done_callback(lambda _: self._on_written(write, values))
        return write

    def _on_written(self, write: asyncio.Future[None], values: Sequence[Part | AssistantMessage]) -> None:
        for value in values if write.exception() is None else ():
            if self._unstored.get(value.id, (value, None))[1] is write:
                del self._unstored[value.id]

    # Text and reasoning.

    def start_text(self, block: str, metadata: Metadata | None) -> None:
        self._begin(block, TextPart(**self._ids(), text="", time=Span(start=clock.now_ms()), metadata=metadata))

    def start_reasoning(self, block: str, metadata: Metadata | None) -> None:
        self._begin(block, ReasoningPart(**self._ids(), text="", time=Span(start=clock.now_ms()), metadata=metadata))

    def _begin(self, block: str, part: TextPart | ReasoningPart) -> None:
        self._open[block] = GrowingText(part)
        self._attempt.append(part)

    def append_text(self, block: str, text: str) -> None:
        growing = self._open[block]
        growing.append(text)
        self._store.stream(growing, self._directory, text, self._chain)

    def open_text(self, block: str) -> TextPart:
        part = self._open[block].joined()
        assert isinstance(part, TextPart)
        return part

    def replace_text(self, block: str, text: str | None) -> None:
        """Replaces the streamed text at the end of the block; None keeps it."""
        if text is not None:
            self._open[block] = GrowingText(self._open[block].joined().model_copy(update={"text": text}))

    def end_block(self, block: str, metadata: Metadata | None) -> TextPart | ReasoningPart:
        """Returns the finished part. It is a copy, because frames of the streaming part may still be unsent.

        A reasoning block without text and metadata, which some models send, is not stored."""
        streamed = self._open.pop(block).joined()
        start = streamed.time.start if streamed.time else clock.now_ms()
        ended: dict[str, Any] = {"text": streamed.text.rstrip(), "time": Span(start=start, end=clock.now_ms())}
        part = streamed.model_copy(update=ended if metadata is None else {**ended, "metadata": metadata})
        self._attempt = [part if earlier.id == part.id else earlier for earlier in self._attempt]
        if isinstance(part, TextPart) or part.text or part.metadata:
            self.put(part)
        return part

    # Tools.

    def tool_pending(self, call_id: str, tool: str) -> ToolPart:
        part = self._new_tool(call_id, tool)
        self.put(part)
        return part

    def tool_running(self, call_id: str, tool: str, arguments: dict[str, Any], metadata: Metadata | None = None) -> ToolPart:
        part = self._tools.get(call_id) or self._new_tool(call_id, tool)
        part.tool = tool
        part.metadata = metadata
        part.state = Running(input=arguments, time=Started(start=clock.now_ms()))
        self.put(part)
        return part

    def _new_tool(self, call_id: str, tool: str) -> ToolPart:
        part = ToolPart(**self._ids(), call_id=call_id, tool=tool, state=Pending())
        self._tools[call_id] = part
        self._attempt.append(part)
        return part

    def adopt(self, part: ToolPart) -> None:
        """Takes over a tool call that waited when an earlier server stopped."""
        self._tools[part.call_id] = part

    def tool_progress(self, part: ToolPart, title: str | None, metadata: dict[str, Any] | None) -> None:
        """Announced at once, stored later. Progress after the call's end is ignored."""
        if not isinstance(part.state, Running):
            return
        state = part.state
        part.state = Running(input=state.input, title=title or state.title, metadata=metadata or state.metadata, time=state.time)
        self._store.stream(part, self._directory, chain=self._chain)

    def tool_completed(self, part: ToolPart, result: ToolResult) -> None:
        state = part.state
        assert isinstance(state, Running)
        attachments = [FilePart(**self._ids(), **file.model_dump(exclude={"id"})) for file in result.attachments]
        part.state = Completed(
            input=state.input,
            output=result.output,
            title=result.title,
            metadata=result.metadata,
            time=CompletedTime(start=state.time.start, end=clock.now_ms()),
            attachments=attachments or None,
        )
        self.put(part)

    def tool_failed(self, part: ToolPart, error: str) -> None:
        """Characters of `error` that UTF-8 cannot encode become `?`."""
        now = clock.now_ms()
        error = error.encode("utf-8", "replace").decode()
        started = part.state.time.start if isinstance(part.state, Running) else now
        metadata = part.state.metadata if isinstance(part.state, Running) else None
        part.state = Failed(input=part.state.input, error=error, metadata=metadata, time=Ended(start=started, end=now))
        self.put(part)

    # Steps.

    def step_start(self, snapshot: str | None) -> None:
        part = StepStartPart(**self._ids(), snapshot=snapshot)
        self._attempt.append(part)
        self.put(part)

    def step_finish(self, reason: str, snapshot: str | None, cost: float, tokens: Tokens) -> None:
        self.put(StepFinishPart(**self._ids(), reason=reason, snapshot=snapshot, cost=cost, tokens=tokens))

    def patch(self, tree: str, files: list[str]) -> None:
        self.put(PatchPart(**self._ids(), hash=tree, files=files))

    # What goes wrong.

    def withdraw_attempt(self) -> None:
        """Removes the parts of a failed attempt, because the retry starts from the beginning."""
        self._withdrawn = self._attempt
        if self._withdrawn:
            self._post(self._removal()).add_done_callback(self._on_removed)
        for part in self._withdrawn:
            self._unstored.pop(part.id, None)
        self._attempt = []
        self._open.clear()
        self._tools.clear()

    def _on_removed(self, removal: asyncio.Future[None]) -> None:
        if removal.exception() is None:
            self._withdrawn = []

    def _removal(self) -> SessionChange:
        change = self._change()
        for part in self._withdrawn:
            change.remove_part(part.message_id, part.id)
        return change

    def finish_open_parts(self) -> None:
        """Ends open text with its present content and running tools as aborted. Writes values again that could not be stored."""
        unfinished = [_ended(part) for part in self._join_texts() if part.text]
        self._open.clear()
        if self._chain.failure is None:
            for part in unfinished:
                self.put(part)
        else:
            self._put_again(unfinished)
        for tool in self._tools.values():
            if isinstance(tool.state, Pending | Running):
                self.tool_failed(tool, ABORTED)

    def _put_again(self, unfinished: Sequence[Part]) -> None:
        """Writes everything in one change: the message first, then parts in the order in which they began."""
        self._chain = Chain()
        begun = {part.id: position for position, part in enumerate(self._attempt)}
        values = [value for value, _ in self._unstored.values()]
        lost: dict[str, Part] = {part.id: part for part in unfinished}
        lost |= {part.id: part for part in values if not isinstance(part, AssistantMessage)}
        parts = sorted(lost.values(), key=lambda part: begun.get(part.id, len(begun)))
        change = self._removal()
        if self.message.id in self._unstored:
            self._add_message(change)
        for part in parts:
            self._add_part(change, part)
        self._post(change, [*parts, *(value for value in values if value is self.message)])

    def _ids(self) -> dict[str, str]:
        return {"id": ids.ascending("part"), "session_id": self.message.session_id, "message_id": self.message.id}


def _ended(part: TextPart | ReasoningPart) -> TextPart | ReasoningPart:
    now = clock.now_ms()
    return part.model_copy(update={"time": Span(start=part.time.start if part.time else now, end=now)})
