"""An MCP server that runs as a local program, over its standard input and output: a message a line. The SDK's transport has no
bound on a line."""

import asyncio
import os
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import anyio
from anyio import BrokenResourceError, CancelScope, ClosedResourceError
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from app.project.sandbox.scope import Program
from app.schema.config import McpLocalConfig
from app.tools.mcp.values import McpFailure, McpTarget, McpWatch
from app.tools.process import start
from app.util import bounds
from app.util.bounds import AnswerPassedLimit, require_few_values
from app.util.processes import pipe
from app.util.project_files import resolved
from app.util.tasks import ProcessLocks

MAX_UNREADABLE = 100
"""Lines that are no messages. Some programs print a greeting, but one that prints for ever is no server."""
STOP_SECONDS = 2.0
"""How long a program may take to end when its input is closed."""
_TAIL_BYTES = 2000
_STDERR_MOMENT = 0.2
"""Seconds that a program's last words on standard error may take to arrive after its end."""

_starting = ProcessLocks()
"""A start holds the event loop for some milliseconds: others are served before the next one."""


@asynccontextmanager
async def streams(target: McpTarget, config: McpLocalConfig, watch: McpWatch) -> AsyncIterator[TransportStreams]:
    """Raises McpFailure if the program cannot be started. When its output ends, reports that with its last words to the watch."""
    try:
        program = await asyncio.to_thread(_program, target, config)
        async with _conversation(program, watch) as messages:
            yield messages
    except (OSError, ValueError) as error:
        raise McpFailure(f"{config.command[0]} could not be started: {error}") from error


def _program(target: McpTarget, config: McpLocalConfig) -> Program:
    env = {**target.environment, **config.environment}
    cwd = _working_directory(target, config.cwd) if config.cwd else None
    return target.sandbox.program(config.command, target.workspace, env, cwd=cwd, shows_named=True)


def _working_directory(target: McpTarget, cwd: str) -> Path:
    """Raises McpFailure for a missing directory, or one that is neither in the project's directory nor in its checkout."""
    path = Path(os.path.normpath(target.workspace.directory / cwd))
    real = Path(resolved(path))
    if not any(real.is_relative_to(allowed) for allowed in target.workspace.real_directories()):
        raise McpFailure(f"cwd: {path} is not in {target.workspace.top}")
    if not real.is_dir():
        raise McpFailure(f"cwd: there is no directory {path}")
    return path


@asynccontextmanager
async def _conversation(program: Program, watch: McpWatch) -> AsyncIterator[TransportStreams]:
    """Raises OSError, ValueError if the program cannot be started. A line that is no message is received as an exception."""
    async with pipe() as (errors, sink), AsyncExitStack() as running:
        run = start(program, stdin=PIPE, stderr=sink, limit=bounds.MAX_EVENT_BYTES, grace_seconds=STOP_SECONDS)
        async with _starting.lock("program"):
            with sink, CancelScope(shield=True):
                process, output = await running.enter_async_context(run)
        received, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
        pipes = _Pipes(process, output, errors, received, watch)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pipes.read)
            tasks.start_soon(pipes.read_errors)
            tasks.start_soon(pipes.write, to_send)
            try:
                yield messages, outgoing
            finally:
                messages.close()
                outgoing.close()
                await running.aclose()
                tasks.cancel_scope.cancel()


class _Pipes:
    """Passes a program's messages on, and says when they end, which the SDK tells nobody."""

    def __init__(
        self,
        process: Process,
        output: asyncio.StreamReader,
        errors: asyncio.StreamReader,
        received: MemoryObjectSendStream[SessionMessage | Exception],
        watch: McpWatch,
    ) -> None:
        assert process.stdin is not None
        self._input = process.stdin
        self._output = output
        self._errors = errors
        self._last_errors = b""
        self._errors_ended = asyncio.Event()
        self._received = received
        self._watch = watch

    async def read(self) -> None:
        async with self._received:
            try:
                with suppress(BrokenResourceError, ClosedResourceError):
                    await self._pass_on()
                await self._tell_end()
            except AnswerPassedLimit as passed:
                self._watch.ended(McpFailure(str(passed)))
        while await self._output.read(2**16):
            pass  # a program that cannot write does not end

    async def read_errors(self) -> None:
        """Keeps the end of the program's standard error."""
        while data := await self._errors.read(2**16):
            self._last_errors = (self._last_errors + data)[-_TAIL_BYTES:]
        self._errors_ended.set()

    async def write(self, to_send: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """A program that does not read any more counts as ended: nobody waits for its answers."""
        try:
            async with to_send:
                async for message in to_send:
                    json = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    self._input.write(json.encode(errors="replace") + b"\n")
                    await self._input.drain()
        except OSError:
            await self._tell_end()
            await self._received.aclose()

    async def _pass_on(self) -> None:
        unreadable = 0
        while line := await self._line():
            try:
                require_few_values(line)
                await self._received.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))
            except ValueError as error:
                unreadable += 1
                if unreadable > MAX_UNREADABLE:
                    raise AnswerPassedLimit("The server prints what is not JSON-RPC to its standard output") from error
                await self._received.send(error)

    async def _line(self) -> bytes:
        """Empty at the end."""
        try:
            return await self._output.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            return b""
        except asyncio.LimitOverrunError as error:
            raise AnswerPassedLimit(f"A line of the server has more than {bounds.MAX_EVENT_BYTES} bytes") from error

    async def _tell_end(self) -> None:
        """Does nothing if the client of the messages is gone."""
        if self._received.statistics().open_receive_streams:
            with anyio.move_on_after(_STDERR_MOMENT):  # a process that the program started may hold it open
                await self._errors_ended.wait()
            text = self._last_errors.decode("utf-8", "replace").strip()
            self._watch.ended(McpFailure(f"The server ended. It said: {text}" if text else "The server ended"))
