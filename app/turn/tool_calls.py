"""The tool calls of one step: run in parallel, each result is stored."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import to_json

from app.events.telemetry.observer import ToolCallEnd, ToolCallRecord
from app.permissions.questions import QuestionRejected
from app.permissions.service import PermissionCheck, PermissionNotGranted, PermissionRejected
from app.providers.base import InvalidToolCall, ToolCall, ToolSpec
from app.record.engine import StorageError
from app.record.writer import Lease
from app.schema.event import EventFileEdited, FileRef
from app.schema.model import Agent, Model
from app.schema.part import Pending, ToolPart
from app.schema.permission import Answer, CallRef, PermissionRequest, QuestionInfo, QuestionRequest
from app.schema.project import FileErrors
from app.schema.session import Todo
from app.tools.base import (
    EditorText,
    FileFormatter,
    TaskParameters,
    Tool,
    ToolContext,
    ToolError,
    ToolPermission,
    ToolResult,
    ToolTimeout,
)
from app.tools.structured_output import STRUCTURED_OUTPUT
from app.tools.text_file import json_text, json_value
from app.turn import hooks
from app.turn.decide import since_user
from app.turn.part_writer import PartWriter
from app.turn.turn_context import TurnContext
from app.util import ids
from app.util.tasks import TaskSet
from app.workspace import instructions
from app.workspace.instance import Instance

log = logging.getLogger(__name__)

INVALID = "invalid"
_BOUNDED = (INVALID, STRUCTURED_OUTPUT)
"""The turn itself gives up after several of these calls."""

MAX_KEPT_BYTES = 64 * 1024 * 1024
"""Of the metadata and attached files of a step's results, such as the texts before and after an edit."""


class ToolRun:
    """One call of a step, as seen by its tool and by a subagent that the tool starts."""

    def __init__(self, calls: "ToolCalls", part: ToolPart) -> None:
        self._calls = calls
        self._ctx = calls.ctx
        self.part = part
        self.session = calls.ctx.session
        self.instance = calls.ctx.instance
        self.agent = calls.agent
        self.writer = calls.writer

    async def require_permission(self, needed: ToolPermission) -> None:
        if needed.permission == "external_directory":
            require_readable(self.instance, needed)
        shown = PermissionRequest(
            id=ids.ascending("permission"),
            session_id=self.session.id,
            permission=needed.permission,
            patterns=json_value(needed.patterns),
            metadata=json_value(needed.metadata),
            always=json_value(needed.always),
            tool=self._ref(),
        )
        ruleset = [*self.agent.permission, *(self.session.permission or [])]
        plugin_decision = hooks.permission_decision(self.instance.extensions.hooks)
        await self._ctx.services.permissions.ask(
            PermissionCheck(
                self.instance.location,
                shown,
                ruleset,
                needed.subjects,
                plugin_decision,
                self._lease,
                self.session.owner or "",
                self.in_order(),
            )
        )

    def in_order(self) -> asyncio.Lock:
        return self._calls.asking

    async def approved_directories(self) -> list[Path]:
        rules = await self._ctx.services.permissions.approved(self.instance.location.project_id, self.session.owner or "")
        patterns = [rule.pattern for rule in rules if rule.permission == "external_directory"]
        named = (Path(pattern.removesuffix("*")) for pattern in patterns if pattern.startswith("/"))
        return [path for path in named if not self.instance.hides(path)]

    async def update(self, *, title: str | None = None, metadata: dict[str, Any] | None = None) -> None:
        self.writer.tool_progress(self.part, json_value(title), json_value(metadata))

    async def ask_questions(self, questions: list[QuestionInfo]) -> list[Answer]:
        request = QuestionRequest(id=ids.ascending("question"), session_id=self.session.id, questions=questions, tool=self._ref())
        return await self._ctx.services.questions.ask(self.instance.location.directory, request, self._lease)

    async def run_subagent(self, request: TaskParameters) -> ToolResult:
        return await self._ctx.run_subagent(self, request)

    async def call_tool(self, tool: str, arguments: dict[str, Any]) -> ToolResult:
        return await self._calls.run(self.writer.tool_running(ids.ascending("part"), tool, arguments))

    async def todos(self) -> list[Todo]:
        await self._ctx.services.store.barrier()  # an earlier call of the step may be storing another list
        return await self._ctx.services.store.todos(self.session.id)

    async def set_todos(self, todos: list[Todo]) -> None:
        directory = self.instance.location.directory
        await self._ctx.services.store.write(self.session.id, directory, lambda tx: tx.put_todos(todos))

    async def instructions_near(self, path: Path) -> dict[str, str]:
        return await instructions.nearby(path, instructions.InstructionScope.of(self.instance), self._calls.seen_instructions)

    async def file_edited(self, path: Path) -> None:
        event = EventFileEdited(properties=FileRef(file=json_text(str(path))))
        directory = self.instance.location.directory
        self._ctx.services.store.post(self.session.id, directory, lambda tx: tx.announce(event))

    async def editor(self) -> EditorText | None:
        """A subagent reads in the editor of the session that it works for."""
        editors, session = self._ctx.services.editor_files, self.session
        while not editors.has_editor(session.id):
            if editors.is_empty or session.parent_id is None:
                return None
            session = await self._ctx.store.session(session.parent_id)
        return partial(editors.text, session.id)

    async def formatters(self, path: Path) -> list[FileFormatter]:
        instance = self.instance
        formatters, workspace = instance.extensions.formatters, instance.sandbox_workspace
        return [
            FileFormatter(one.name, partial(formatters.run, one, workspace), partial(formatters.failed, one))
            for one in await formatters.due(path)
        ]

    async def file_read(self, path: Path) -> None:
        await self.instance.extensions.language_servers.serving(path)

    async def ask_language_servers(self, operation: str, path: Path, text: str, position: tuple[int, int]) -> list[Any] | None:
        return await self.instance.extensions.language_servers.answers(operation, path, text, position)

    async def errors_in(self, files: Mapping[Path, str]) -> Mapping[Path, FileErrors]:
        """The errors by the given paths, without files that the user may not see."""
        instance = self.instance
        found = await instance.extensions.language_servers.check(files)
        return {path: errors for path, errors in found.items() if not instance.hides(path)}

    def _lease(self) -> Lease | None:
        return self._ctx.services.store.lease(self.session.id)

    def _ref(self) -> CallRef:
        return CallRef(message_id=self.part.message_id, call_id=self.part.call_id)


@dataclass(eq=False)
class ToolCalls:
    """`bypass_agent_check`: the user has asked for the subagent. `blocked`: the user rejected a call without feedback, or
    dismissed a question: the turn stops after this step."""

    ctx: TurnContext
    writer: PartWriter
    tools: Mapping[str, Tool[Any]]
    agent: Agent
    model: Model
    bypass_agent_check: bool = False
    blocked: bool = field(default=False, init=False)
    started: bool = field(default=False, init=False)
    asking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _kept_bytes: int = field(default=0, init=False)
    _running: TaskSet = field(default_factory=TaskSet, init=False)

    @cached_property
    def _calls(self) -> list[ToolPart]:
        """The turn's calls across its steps, newest last."""
        steps = since_user(self.ctx.history)
        return [part for step in steps for part in step.parts if isinstance(part, ToolPart)]

    @cached_property
    def seen_instructions(self) -> set[str]:
        """Files that the model has been sent."""
        return instructions.seen_in(self.ctx.history)

    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that are offered to the model."""
        return tuple(ToolSpec(tool.id, tool.description, tool.schema) for tool in self.tools.values() if tool.id != INVALID)

    def start(self, call: ToolCall) -> None:
        name = call.tool if call.tool in self.tools else call.tool.lower()
        if name in self.tools:
            self._start(call.call_id, name, call.input, call.metadata)
        else:
            self._start(call.call_id, INVALID, {"tool": call.tool, "error": self._unknown(call.tool)}, None)

    def start_invalid(self, call: InvalidToolCall) -> None:
        error = f"The arguments are not a JSON object: {call.error}"
        self._start(call.call_id, INVALID, {"tool": call.tool, "error": error}, None)

    def resume(self, part: ToolPart) -> None:
        """Runs a call that waited for the user when an earlier server stopped: asks again, or finds the request that was left."""
        self.writer.adopt(part)
        self._spawn(part, looping=False)

    async def finish(self) -> None:
        """Waits until every call has its result. Raises StorageError if a call did not run because it could not be stored."""
        await self._running.wait()
        self.writer.raise_failure()

    async def abort(self) -> None:
        """Cancels running calls and waits for their clean-up."""
        await self._running.cancel()

    def _unknown(self, name: str) -> str:
        return f"There is no tool {name!r}. There are: {', '.join(sorted(set(self.tools) - {INVALID}))}"

    def _start(self, call_id: str, tool: str, arguments: dict[str, Any], metadata: dict[str, Any] | None) -> None:
        part = self.writer.tool_running(call_id, tool, arguments, metadata)
        self._calls.append(part)
        self._spawn(part, tool not in _BOUNDED and is_looping(self._calls, tool, arguments))

    def _spawn(self, part: ToolPart, looping: bool) -> None:
        self.started = True
        self._running.start(self._run_in_background(part, looping), f"tool {part.tool}")

    async def _run_in_background(self, part: ToolPart, looping: bool) -> None:
        """An error of the call is stored, and sent to the model. After a StorageError, which `finish` raises, the call did not
        run. A call is cancelled by a turn that is aborted, which ends it."""
        with suppress(PermissionNotGranted, QuestionRejected, ToolError, StorageError, asyncio.CancelledError):
            await self.run(part, looping)

    async def run(self, part: ToolPart, looping: bool = False) -> ToolResult:
        """Runs the call and stores its result, or its error, which is raised too. Raises StorageError without running the call if
        the call itself cannot be stored: nothing may happen without a record of it."""
        await self.writer.stored()
        record = ToolCallRecord(part.session_id, part.tool, part.call_id, part.state.input)
        with self.ctx.services.observer.tool_call(record):
            try:
                result = self._kept(await self._bounded(await self._execute(part, looping)))
                self.writer.tool_completed(part, result)
            except (PermissionNotGranted, QuestionRejected, ToolError) as error:
                if isinstance(error, ToolTimeout):
                    _log_timeout(part, str(error))
                is_rejected = isinstance(error, PermissionRejected | QuestionRejected)
                self.blocked |= is_rejected and not self.ctx.instance.config.experimental.continue_loop_on_deny
                self.ctx.record.rejected = self.blocked
                self.writer.tool_failed(part, f"Error: {error}")
                record.failed(error, ToolCallEnd.FAILED if isinstance(error, ToolError) else ToolCallEnd.DENIED)
                raise
            except Exception as error:
                log.exception("tool %s failed", part.tool)
                self.writer.tool_failed(part, f"Error: {type(error).__name__}: {error}")
                record.failed(error)
                raise ToolError(str(error)) from error
            if result.timeout is not None:
                _log_timeout(part, result.timeout)
            record.completed(result.output)
            return result

    async def _execute(self, part: ToolPart, looping: bool) -> ToolResult:
        if part.tool not in self.tools:  # a call that is resumed, or that is in a batch
            raise ToolError(self._unknown(part.tool))
        tool, context = self.tools[part.tool], self._context(part)
        if looping:
            asked = {"tool": part.tool, "input": part.state.input}
            await context.host.require_permission(ToolPermission("doom_loop", [part.tool], [part.tool], asked))
        try:
            arguments = tool.parameters.model_validate(await hooks.tool_args(self.ctx.hooks, part))
        except ValidationError as error:
            raise ToolError(_explained(tool.id, error)) from error
        result = await tool.execute(arguments, context)
        named = {"title": json_text(result.title), "output": json_text(result.output), "metadata": json_value(result.metadata)}
        return await hooks.tool_result(self.ctx.hooks, part, replace(result, **named))

    def _context(self, part: ToolPart) -> ToolContext:
        return ToolContext(
            session_id=part.session_id,
            message_id=part.message_id,
            call_id=part.call_id,
            agent=self.agent,
            sandbox_workspace=self.ctx.instance.sandbox_workspace,
            host=ToolRun(self, part),
            bypass_agent_check=self.bypass_agent_check,
        )

    async def _bounded(self, result: ToolResult) -> ToolResult:
        """The result with its output truncated for the model; the whole output is kept in a file."""
        if "truncated" in result.metadata:
            return result
        outputs = self.ctx.services.outputs.within(self.ctx.instance.config.tool_output)
        bounded = await outputs.bound(result.output, may_delegate="task" in self.tools)
        metadata = {**result.metadata, "truncated": bounded.truncated}
        if bounded.output_path:
            metadata["outputPath"] = str(bounded.output_path)
        return replace(result, output=bounded.text, metadata=metadata)

    def _kept(self, result: ToolResult) -> ToolResult:
        """The result, its text alone where the step's results would have more than MAX_KEPT_BYTES with the rest."""
        size = len(to_json(result.metadata)) + sum(len(file.url) for file in result.attachments)
        if self._kept_bytes + size <= MAX_KEPT_BYTES:
            self._kept_bytes += size
            return result
        note = "\n\n(Its files are left out: the calls of this step have too many large ones. Call it again alone.)"
        return replace(result, output=result.output + note if result.attachments else result.output, metadata={}, attachments=[])


def _log_timeout(part: ToolPart, what: str) -> None:
    log.warning("the call %s of tool %s timed out: %s", part.call_id, part.tool, what)


def _explained(tool: str, error: ValidationError) -> str:
    problems = "; ".join(f"{'.'.join(map(str, issue['loc'])) or 'input'}: {issue['msg']}" for issue in error.errors())
    return (
        f"The {tool} tool was called with invalid arguments: {problems}. Correct them to fit the tool's schema and call it again."
    )


DOOM_LOOP_CALLS = 3


def is_looping(calls: Sequence[ToolPart], tool: str, arguments: dict[str, Any]) -> bool:
    """Whether the last DOOM_LOOP_CALLS of `calls` are this same call. `calls`: the turn's calls across its steps, newest last."""
    newest = calls[-DOOM_LOOP_CALLS:]
    return len(newest) == DOOM_LOOP_CALLS and all(
        call.tool == tool and not isinstance(call.state, Pending) and call.state.input == arguments for call in newest
    )


def require_readable(instance: Instance, needed: ToolPermission) -> None:
    """Even a granted permission does not reach another user's directories. Raises ToolError."""
    named = [needed.metadata["filepath"]] if "filepath" in needed.metadata else needed.patterns
    for path in named:
        if instance.hides(path.removesuffix("/*") or "/"):
            raise ToolError(f"{path} is outside the directories that this user may work in.")
