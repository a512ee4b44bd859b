"""Accumulates a stream into the parts of one assistant message and stores them."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

from app.providers.base import Metadata
from app.record.writer import Chain
from app.schema.message import AssistantMessage
from app.schema.part import (
    Completed,
    CompletedTime,
    Ended,
    Failed,
    FilePart,
    Part,
    PatchPart,
    Pending,
    ReasoningPart,
    Running,
    Span,
    Started,
    StepFinishPart,
    StepStartPart,
    TextPart,
    Tokens,
    ToolPart,
)
from app.sessions.live_parts import LivePart
from app.sessions.rows import message_row, part_row
from app.sessions.session_tx import SessionTx
from app.sessions.store import Store
from app.sessions.usage import StepUsage
from app.tools.base import ToolResult
from app.turn.ends import interrupted_part
from app.util import clock, ids

ABORTED = "Tool execution aborted"


class PartWriter:
    """Enqueues writes without waiting. They form a chain: after one that fails, none is stored or announced. `stored`, which
    waits for them, and `raise_failure`, which does not wait, raise that failure until `finish_open_parts` writes the lost values
    again."""

    def __init__(self, store: Store, directory: str, message: AssistantMessage) -> None:
        self._store = store
        self._directory = directory
        self.message = message
        self.open: dict[str, LivePart] = {}
        """The blocks of text and reasoning that stream, by id."""
        self._tools: dict[str, ToolPart] = {}
        self._attempt: list[Part] = []
        self.chain = Chain()
        self._newest_write: asyncio.Future[Any] | None = None
        self._writes: dict[str, tuple[Part | AssistantMessage, asyncio.Future[Any]]] = {}
        """By id, the values, with the newest write of each."""
        self._withdrawn: list[Part] = []
        self._end: StepFinishPart | None = None
        """The part by which the ledger has the step; it has a step without one by its message."""

    def has_text(self) -> bool:
        return any(isinstance(part, TextPart) and part.text.strip() for part in self._texts())

    def answer_text(self) -> str:
        """The text and reasoning of the answer."""
        return "".join(part.text for part in self._texts())

    def _texts(self) -> Iterator[TextPart | ReasoningPart]:
        open_parts = {part.id: part for part in map(self.open_text, self.open)}
        for part in self._attempt:
            if isinstance(part, TextPart | ReasoningPart):
                yield open_parts.get(part.id, part)

    async def stored(self) -> None:
        """Waits until everything enqueued so far is stored. Raises StorageError."""
        if self._newest_write is not None:
            await self._newest_write  # of a chain, which is stored in order
        self.raise_failure()

    def raise_failure(self) -> None:
        if self.chain.failure is not None:
            raise self.chain.failure

    def put(self, part: Part) -> None:
        self._post(None, part)

    def enqueue_message(self) -> None:
        self._post(self.message)

    def _post(self, message: AssistantMessage | None, *parts: Part, removed: Sequence[Part] = ()) -> asyncio.Future[None]:
        """Enqueues one change that removes parts, and puts the message and other parts."""
        message_values, rows = message_row(message) if message else None, list(map(part_row, parts))
        end = self._end if self._end in parts else None
        is_uncounted = message is not None and message.time.completed is not None and self._end is None
        usage = StepUsage.of(self.message, end) if end or is_uncounted else None

        def work(tx: SessionTx) -> None:
            for part in removed:
                tx.remove_part(part.message_id, part.id)
            if message_values is not None:
                tx.put_message(message_values)
            tx.put_parts(*rows)
            if usage is not None:
                record = tx.count_step if end else tx.add_usage
                record(usage)

        write = self._newest_write = self._store.post_parts(
            self.message.session_id, self._directory, work, parts=parts, removed=removed, chain=self.chain
        )
        for value in (message, *parts) if message else parts:
            self._writes[value.id] = value, write
        return write

    # Text and reasoning.

    def start_block(self, block: str, kind: type[TextPart | ReasoningPart], metadata: Metadata | None) -> None:
        part = kind(**self._ids(), text="", time=Span(start=clock.now_ms()), metadata=metadata)
        self.open[block] = LivePart(part, self._directory, self.chain)
        self._attempt.append(part)

    def open_text(self, block: str) -> TextPart | ReasoningPart:
        """The part of an open block, with its text up to date."""
        part = self.open[block].up_to_date()
        assert isinstance(part, TextPart | ReasoningPart)
        return part

    def end_block(self, block: str, metadata: Metadata | None, text: str | None = None) -> None:
        """Puts a copy of the part, because frames of the streaming part may still be unsent. `text` replaces what was streamed. A
        reasoning block without text and metadata, which some models send, is not stored."""
        streamed = self.open_text(block)
        del self.open[block]
        text = streamed.text if text is None else text
        start = streamed.time.start if streamed.time else clock.now_ms()
        ended: dict[str, Any] = {"text": text.rstrip(), "time": Span(start=start, end=clock.now_ms())}
        part = streamed.model_copy(update=ended if metadata is None else {**ended, "metadata": metadata})
        self._attempt[self._attempt.index(streamed)] = part
        if isinstance(part, TextPart) or part.text or part.metadata:
            self.put(part)

    # Tools.

    def tool_pending(self, call_id: str, tool: str) -> None:
        self.put(self._new_tool(call_id, tool))

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
        self._store.live.changed(part, self._directory, self.chain)

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
        self._end = StepFinishPart(**self._ids(), reason=reason, snapshot=snapshot, cost=cost, tokens=tokens)
        self.put(self._end)

    def patch(self, tree: str, files: list[str]) -> None:
        self.put(PatchPart(**self._ids(), hash=tree, files=files))

    # Failures.

    def withdraw_attempt(self) -> None:
        """Removes the parts of a failed attempt, because the retry starts from the beginning."""
        self._withdrawn = self._attempt
        if self._withdrawn:
            self._post(None, removed=self._withdrawn).add_done_callback(self._on_removed)
        for part in self._withdrawn:
            self._writes.pop(part.id, None)
        self._attempt = []
        self.open.clear()
        self._tools.clear()

    def _on_removed(self, removal: asyncio.Future[Any]) -> None:
        if removal.exception() is None:
            self._withdrawn = []

    def finish_open_parts(self) -> None:
        """Ends open text with its present content, and running tools as aborted. Writes values again that could not be stored."""
        unfinished = [ended for part in map(self.open_text, self.open) if part.text and (ended := interrupted_part(part))]
        self.open.clear()
        if self.chain.failure is None:
            for part in unfinished:
                self.put(part)
        else:
            self._put_again(unfinished)
        for tool in self._tools.values():
            if isinstance(tool.state, Pending | Running):
                self.tool_failed(tool, ABORTED)

    def _put_again(self, unfinished: Sequence[Part]) -> None:
        """Writes everything in one change: the message first, then parts in the order in which they began."""
        self.chain = Chain()
        begun = {part.id: position for position, part in enumerate(self._attempt)}
        unstored = [value for value, write in self._writes.values() if not write.done() or write.exception() is not None]
        message = self.message if self.message in unstored else None
        lost = {part.id: part for part in (*unfinished, *unstored) if not isinstance(part, AssistantMessage)}
        parts = sorted(lost.values(), key=lambda part: begun.get(part.id, len(begun)))
        self._post(message, *parts, removed=self._withdrawn)

    def _ids(self) -> dict[str, str]:
        return {"id": ids.ascending("part"), "session_id": self.message.session_id, "message_id": self.message.id}
