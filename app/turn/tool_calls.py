"""Runs the tool calls of one step in parallel and stores each result."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pydantic import ValidationError

from app.permission.errors import PermissionNotGranted, PermissionRejected
from app.plugin.runner import HookRunner
from app.provider.base import InvalidToolCall, ToolCall, ToolSpec
from app.question.errors import QuestionRejected
from app.schema.part import ToolPart
from app.storage.engine import StorageError
from app.telemetry.observer import NOBODY, Observer
from app.telemetry.records import ToolCallEnd, ToolCallRecord
from app.tool.base import Tool, ToolContext, ToolError, ToolPermission, ToolResult, ToolTimeout
from app.tool.structured_output import STRUCTURED_OUTPUT
from app.turn import hooks
from app.turn.doom_loop import is_looping
from app.turn.part_writer import PartWriter

log = logging.getLogger(__name__)

INVALID = "invalid"
_BOUNDED = (INVALID, STRUCTURED_OUTPUT)
"""Calls that the turn itself gives up on after some tries."""


class Bounds(Protocol):
    async def bound(self, result: ToolResult) -> ToolResult:
        """The result with its output truncated for the model."""
        ...


class ToolCalls:
    """`earlier`: the calls of the turn's previous steps. `context` makes the ToolContext of a call, given these calls: if it kept
    them, what a finished turn holds would wait for the garbage collector. `stops_on_rejection`: a rejection without feedback ends
    the turn after this step."""

    def __init__(
        self,
        tools: Mapping[str, Tool[Any]],
        writer: PartWriter,
        context: Callable[["ToolCalls", ToolPart], ToolContext],
        bounds: Bounds,
        earlier: Sequence[ToolPart],
        *,
        plugin_hooks: HookRunner = HookRunner(),
        observer: Observer = NOBODY,
        stops_on_rejection: bool = True,
    ) -> None:
        self._tools = tools
        self._writer = writer
        self._context = context
        self._bounds = bounds
        self._calls = list(earlier)
        self._hooks = plugin_hooks
        self._observer = observer
        self._running: set[asyncio.Task[None]] = set()
        self._stops_on_rejection = stops_on_rejection
        self.blocked = False
        """The user rejected a call without feedback: the turn stops after this step."""
        self.started = False

    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that are offered to the model."""
        return tuple(_spec(tool) for tool in self._tools.values() if tool.id != INVALID)

    def start(self, call: ToolCall) -> None:
        name = self._repaired(call.tool)
        if name is not None:
            self._start(call.call_id, name, call.input, call.metadata)
            return
        error = f"There is no tool {call.tool!r}. There are: {self._tool_names()}"
        self._start(call.call_id, INVALID, {"tool": call.tool, "error": error}, None)

    def start_invalid(self, call: InvalidToolCall) -> None:
        error = f"The arguments are not a JSON object: {call.error}"
        self._start(call.call_id, INVALID, {"tool": call.tool, "error": error}, None)

    def resume(self, part: ToolPart) -> None:
        """Runs a call that waited for permission when an earlier server stopped."""
        self._calls.append(part)
        self._spawn(part, looping=False)

    async def finish(self) -> None:
        """Waits until every call has its result. Raises StorageError if a call did not run because it could not be stored."""
        await self._wait_for_all()
        self._writer.raise_failure()

    async def abort(self) -> None:
        """Cancels running calls and waits for their clean-up."""
        for task in self._running:
            task.cancel()
        await self._wait_for_all()

    async def _wait_for_all(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    async def call(self, tool: str, arguments: dict[str, Any], call_id: str) -> ToolResult:
        """Runs a call made by another tool, as a part of its own."""
        part = self._writer.tool_running(call_id, tool, arguments)
        return await self._run_and_store(part)

    def _find(self, name: str) -> Tool[Any]:
        """Raises ToolError for an unknown tool, which resumed calls and calls in a batch may name."""
        if name not in self._tools:
            raise ToolError(f"There is no tool {name!r}. There are: {self._tool_names()}")
        return self._tools[name]

    def _tool_names(self) -> str:
        return ", ".join(sorted(set(self._tools) - {INVALID}))

    def _repaired(self, name: str) -> str | None:
        if name in self._tools:
            return name
        return name.lower() if name.lower() in self._tools else None

    def _start(self, call_id: str, tool: str, arguments: dict[str, Any], metadata: dict[str, Any] | None) -> None:
        part = self._writer.tool_running(call_id, tool, arguments, metadata)
        self._calls.append(part)
        self._spawn(part, tool not in _BOUNDED and is_looping(self._calls, tool, arguments))

    def _spawn(self, part: ToolPart, looping: bool) -> None:
        self.started = True
        task = asyncio.create_task(self._run(part, looping), name=f"tool {part.tool}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, part: ToolPart, looping: bool) -> None:
        try:
            await self._run_and_store(part, looping)
        except (PermissionNotGranted, QuestionRejected, ToolError):
            return  # stored as an error, which is sent to the model
        except StorageError:
            return  # the call did not run; `finish` raises the error
        except asyncio.CancelledError:
            return  # the turn is being aborted and ends the remaining calls

    async def _run_and_store(self, part: ToolPart, looping: bool = False) -> ToolResult:
        """Runs the call and stores its result, or its error, which is raised too. Raises StorageError without running the call if
        the call itself cannot be stored: nothing may happen without a record of it."""
        await self._writer.stored()
        record = ToolCallRecord(part.session_id, part.tool, part.call_id, part.state.input)
        with self._observer.tool_call(record):
            return await self._run_recorded(part, looping, record)

    async def _run_recorded(self, part: ToolPart, looping: bool, record: ToolCallRecord) -> ToolResult:
        try:
            result = await self._bounds.bound(await self._execute(part, looping))
            self._writer.tool_completed(part, result)
        except (PermissionNotGranted, QuestionRejected, ToolError) as error:
            if isinstance(error, ToolTimeout):
                _log_timeout(part, str(error))
            self.blocked |= self._stops_on_rejection and isinstance(error, PermissionRejected | QuestionRejected)
            self._writer.tool_failed(part, f"Error: {error}")
            record.failed(error, ToolCallEnd.FAILED if isinstance(error, ToolError) else ToolCallEnd.DENIED)
            raise
        except Exception as error:
            log.exception("tool %s failed", part.tool)
            self._writer.tool_failed(part, f"Error: {type(error).__name__}: {error}")
            record.failed(error)
            raise ToolError(str(error)) from error
        if result.timeout is not None:
            _log_timeout(part, result.timeout)
        record.completed(result.output)
        return result

    async def _execute(self, part: ToolPart, looping: bool) -> ToolResult:
        tool, context = self._find(part.tool), self._context(self, part)
        if looping:
            asked = {"tool": part.tool, "input": part.state.input}
            await context.host.require_permission(ToolPermission("doom_loop", [part.tool], [part.tool], asked))
        try:
            arguments = tool.parameters.model_validate(await hooks.tool_args(self._hooks, part))
        except ValidationError as error:
            raise ToolError(_explained(tool.id, error)) from error
        return await hooks.tool_result(self._hooks, part, await tool.execute(arguments, context))


def _log_timeout(part: ToolPart, what: str) -> None:
    log.warning("the call %s of tool %s timed out: %s", part.call_id, part.tool, what)


def _spec(tool: Tool[Any]) -> ToolSpec:
    return ToolSpec(tool.id, tool.description(), tool.schema())


def _explained(tool: str, error: ValidationError) -> str:
    problems = "; ".join(f"{'.'.join(map(str, issue['loc'])) or 'input'}: {issue['msg']}" for issue in error.errors())
    return (
        f"The {tool} tool was called with invalid arguments: {problems}. Correct them to fit the tool's schema and call it again."
    )
