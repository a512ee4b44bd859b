"""Runs the tool calls of one step, in parallel, each settled on its own."""

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
from app.tool.base import PermissionAsk, Tool, ToolContext, ToolError, ToolResult
from app.turn import hooks
from app.turn.doom_loop import is_looping
from app.turn.part_writer import PartWriter

log = logging.getLogger(__name__)

INVALID = "invalid"


class Bounds(Protocol):
    async def bound(self, result: ToolResult) -> ToolResult:
        """The result with its output cut to what a model should be sent."""
        ...


class ToolCalls:
    """`earlier` are the calls of the turn's former steps; `context` makes the facts of one call; `refusal_stops`: a person's
    plain no ends the turn after this step."""

    def __init__(
        self,
        tools: Mapping[str, Tool[Any]],
        writer: PartWriter,
        context: Callable[[ToolPart], ToolContext],
        bounds: Bounds,
        earlier: Sequence[ToolPart],
        *,
        plugin_hooks: HookRunner = HookRunner(),
        refusal_stops: bool = True,
    ) -> None:
        self._tools = tools
        self._writer = writer
        self._context = context
        self._bounds = bounds
        self._calls = list(earlier)
        self._hooks = plugin_hooks
        self._running: set[asyncio.Task[None]] = set()
        self._refusal_stops = refusal_stops
        self.blocked = False
        """A person said no without saying what to do instead: the turn stops after this step."""
        self.started = False

    def specs(self) -> tuple[ToolSpec, ...]:
        """What the model is offered."""
        return tuple(_spec(tool) for tool in self._tools.values() if tool.id != INVALID)

    def start(self, call: ToolCall) -> None:
        name = self._repaired(call.tool)
        if name is not None:
            self._start(call.call_id, name, call.input, call.metadata)
            return
        error = f"There is no tool {call.tool!r}. There are: {self._known()}"
        self._start(call.call_id, INVALID, {"tool": call.tool, "error": error}, None)

    def start_invalid(self, call: InvalidToolCall) -> None:
        error = f"The arguments are not a JSON object: {call.error}"
        self._start(call.call_id, INVALID, {"tool": call.tool, "error": error}, None)

    def resume(self, part: ToolPart) -> None:
        """Run a call that had not begun: an earlier server asked for leave and was gone before the reply."""
        self._calls.append(part)
        self._spawn(part, looping=False)

    async def finish(self) -> None:
        """Wait until every call has its result. Raises StorageError when one was not run because it could not be stored."""
        await self._over()
        self._writer.raise_failure()

    async def abort(self) -> None:
        """Cancel what runs and wait until it has cleaned up."""
        for task in self._running:
            task.cancel()
        await self._over()

    async def _over(self) -> None:
        while self._running:
            await asyncio.wait(self._running)

    async def call(self, tool: str, arguments: dict[str, Any], call_id: str) -> ToolResult:
        """Run a call that another tool makes, as a part of its own."""
        part = self._writer.tool_running(call_id, tool, arguments)
        return await self._settle(part)

    def _find(self, name: str) -> Tool[Any]:
        """A call that is resumed, or stands in a batch, may name a tool that is not there (any more)."""
        if name not in self._tools:
            raise ToolError(f"There is no tool {name!r}. There are: {self._known()}")
        return self._tools[name]

    def _known(self) -> str:
        return ", ".join(sorted(set(self._tools) - {INVALID}))

    def _repaired(self, name: str) -> str | None:
        if name in self._tools:
            return name
        return name.lower() if name.lower() in self._tools else None

    def _start(self, call_id: str, tool: str, arguments: dict[str, Any], metadata: dict[str, Any] | None) -> None:
        part = self._writer.tool_running(call_id, tool, arguments, metadata)
        self._calls.append(part)
        self._spawn(part, tool != INVALID and is_looping(self._calls, tool, arguments))

    def _spawn(self, part: ToolPart, looping: bool) -> None:
        self.started = True
        task = asyncio.create_task(self._run(part, looping), name=f"tool {part.tool}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, part: ToolPart, looping: bool) -> None:
        try:
            await self._settle(part, looping)
        except (PermissionNotGranted, QuestionRejected, ToolError):
            return  # settled as an error, which the model is told
        except StorageError:
            return  # not run; `finish` raises it
        except asyncio.CancelledError:
            return  # the turn is being aborted and settles what is left

    async def _settle(self, part: ToolPart, looping: bool = False) -> ToolResult:
        """Run the call and store its result, or what went wrong, which is raised too. Raises StorageError when the call is not
        run: what it does must not happen without a record of it."""
        await self._writer.stored()
        try:
            result = await self._bounds.bound(await self._execute(part, looping))
        except (PermissionNotGranted, QuestionRejected, ToolError) as error:
            self.blocked |= self._refusal_stops and isinstance(error, PermissionRejected | QuestionRejected)
            self._writer.tool_failed(part, f"Error: {error}")
            raise
        except Exception as error:
            log.exception("tool %s failed", part.tool)
            self._writer.tool_failed(part, f"Error: {type(error).__name__}: {error}")
            raise ToolError(str(error)) from error
        self._writer.tool_completed(part, result)
        return result

    async def _execute(self, part: ToolPart, looping: bool) -> ToolResult:
        tool, context = self._find(part.tool), self._context(part)
        if looping:
            asked = {"tool": part.tool, "input": part.state.input}
            await context.host.ask(PermissionAsk("doom_loop", [part.tool], [part.tool], asked))
        try:
            arguments = tool.parameters.model_validate(await hooks.tool_args(self._hooks, part))
        except ValidationError as error:
            raise ToolError(_explained(tool.id, error)) from error
        return await hooks.tool_result(self._hooks, part, await tool.execute(arguments, context))


def _spec(tool: Tool[Any]) -> ToolSpec:
    return ToolSpec(tool.id, tool.description(), tool.schema())


def _explained(tool: str, error: ValidationError) -> str:
    problems = "; ".join(f"{'.'.join(map(str, issue['loc'])) or 'input'}: {issue['msg']}" for issue in error.errors())
    return (
        f"The {tool} tool was called with invalid arguments: {problems}. Correct them to fit the tool's schema and call it again."
    )
