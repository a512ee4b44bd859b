"""An MCP server that runs as a local program, over its standard input and output: a message a line. The SDK's own way has no
bound on a line."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TextIO

import anyio
from anyio import BrokenResourceError, CancelScope, ClosedResourceError
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import StdioServerParameters
from mcp.client._transport import ReadStream, TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from app.mcp.values import McpFailure, McpTarget, McpWatch
from app.schema.config import McpLocalConfig
from app.util import bounded_answer, marks
from app.util.bounded_answer import AnswerPassedLimit, require_few_values
from app.util.pipe_reader import PipeReader

ReceivedMessage = SessionMessage | Exception
STOP_SECONDS = 2.0
"""How long a program may take to end when its input is closed, and again when it is told to."""
_LOOK_SECONDS = 0.01
_GONE = (BrokenResourceError, ClosedResourceError)


@asynccontextmanager
async def program_streams(program: StdioServerParameters, errors: TextIO) -> AsyncIterator[TransportStreams]:
    """Raises OSError, ValueError when it cannot be started. What is no message is received as an exception; one that is too long
    as an AnswerPassedLimit, and the last."""
    process = await asyncio.create_subprocess_exec(
        program.command,
        *program.args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        env=get_default_environment() | (program.env or {}),
        cwd=program.cwd,
        start_new_session=True,
        limit=bounded_answer.MAX_EVENT_BYTES,
    )
    received, messages = anyio.create_memory_object_stream[ReceivedMessage](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, process, received)
        tasks.start_soon(_write, process, to_send, received)
        try:
            yield messages, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                messages.close()
                outgoing.close()
                await _end(process)
            tasks.cancel_scope.cancel()


async def _read(process: asyncio.subprocess.Process, received: MemoryObjectSendStream[ReceivedMessage]) -> None:
    assert process.stdout is not None
    async with received:
        with suppress(*_GONE):
            while (line := await _line(process.stdout)) is not None:
                await received.send(line if isinstance(line, AnswerPassedLimit) else _parsed(line))
                if isinstance(line, AnswerPassedLimit):
                    break
    while await process.stdout.read(2**16):
        pass  # a program that cannot write does not end


async def _line(output: asyncio.StreamReader) -> bytes | AnswerPassedLimit | None:
    """None at the end."""
    try:
        return await output.readuntil(b"\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        return AnswerPassedLimit(f"A line of the server has more than {bounded_answer.MAX_EVENT_BYTES} bytes")


def _parsed(line: bytes) -> ReceivedMessage:
    try:
        require_few_values(line)
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValueError, AnswerPassedLimit) as error:
        return error


async def _write(
    process: asyncio.subprocess.Process,
    to_send: MemoryObjectReceiveStream[SessionMessage],
    received: MemoryObjectSendStream[ReceivedMessage],
) -> None:
    """A program that reads no more is one that has ended: nobody waits for its answers."""
    assert process.stdin is not None
    try:
        async with to_send:
            async for message in to_send:
                json = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                process.stdin.write(json.encode(errors="replace") + b"\n")
                await process.stdin.drain()
    except OSError:
        await received.aclose()


async def _end(process: asyncio.subprocess.Process) -> None:
    """Closes its input, then ends its process group."""
    assert process.stdin is not None
    process.stdin.close()
    for number in (signal.SIGTERM, signal.SIGKILL):
        if await _has_ended(process):
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
    await _has_ended(process)


async def _has_ended(process: asyncio.subprocess.Process) -> bool:
    """Within STOP_SECONDS. Waiting for the process would wait for whoever has inherited its pipes, too."""
    with anyio.move_on_after(STOP_SECONDS):
        while process.returncode is None:  # noqa: ASYNC110  it tells of its end by nothing else
            await asyncio.sleep(_LOOK_SECONDS)
    return process.returncode is not None


MOST_UNREADABLE = 100
"""Lines that are no messages; some programs print a greeting, but one that prints for ever is no server."""
_TAIL_BYTES = 2000
_STDERR_MOMENT = 0.2
"""Seconds that a program's last words on standard error may take to arrive after it has ended."""


@asynccontextmanager
async def streams(target: McpTarget, config: McpLocalConfig, watch: McpWatch) -> AsyncIterator[TransportStreams]:
    """Raises McpFailure when the program cannot be started; tells the watch when its output ends, with its last words."""
    command = config.command[0]
    mark = marks.new()
    async with _stderr() as errors:
        try:
            program = await asyncio.to_thread(_program, target, config, mark)
            async with program_streams(program, errors.sink) as (read, write):
                yield _Watched(read, watch, errors), write
        except (OSError, ValueError) as error:
            raise McpFailure(f"{command} could not be started: {error}") from error
        finally:
            with CancelScope(shield=True):  # the SDK ends the process group, but not what left it
                await asyncio.to_thread(marks.end, lambda found: found == mark)


def _program(target: McpTarget, config: McpLocalConfig, mark: str) -> StdioServerParameters:
    env = {**target.environment, **config.environment}
    cwd = _working_directory(target, config.cwd) if config.cwd else None
    program = target.sandbox.program(config.command, target.workspace, env, cwd=cwd, shows_named=True)
    command, *arguments = program.argv
    outside = {**(program.env or {}), marks.VARIABLE: mark}
    return StdioServerParameters(command=command, args=arguments, env=outside, cwd=program.cwd, encoding_error_handler="replace")


def _working_directory(target: McpTarget, cwd: str) -> Path:
    """Raises McpFailure for one that is not there, or neither in the directory nor in its checkout."""
    path = Path(os.path.normpath(target.workspace.directory / cwd))
    real = Path(os.path.realpath(path))
    if not any(real.is_relative_to(allowed) for allowed in target.workspace.real_directories()):
        raise McpFailure(f"cwd: {path} is not in {target.workspace.top}")
    if not real.is_dir():
        raise McpFailure(f"cwd: there is no directory {path}")
    return path


class _Watched:
    """The messages of a server. The SDK tells nobody when they end."""

    def __init__(self, messages: ReadStream[ReceivedMessage], watch: McpWatch, errors: "_Stderr") -> None:
        self._messages = messages
        self._watch = watch
        self._errors = errors
        self._unreadable = 0

    async def receive(self) -> ReceivedMessage:
        return await self.__anext__()

    def __aiter__(self) -> "_Watched":
        return self

    async def __anext__(self) -> ReceivedMessage:
        try:
            message = await self._messages.__anext__()
        except StopAsyncIteration:
            self._watch.ended(McpFailure(f"The server ended{await self._errors.stderr_note()}"))
            raise
        if isinstance(message, AnswerPassedLimit):
            self._watch.ended(McpFailure(str(message)))
            raise StopAsyncIteration
        self._unreadable += isinstance(message, Exception)
        if self._unreadable > MOST_UNREADABLE:
            self._watch.ended(McpFailure("The server prints what is not JSON-RPC to its standard output"))
            raise StopAsyncIteration
        return message

    async def aclose(self) -> None:
        await self._messages.aclose()

    async def __aenter__(self) -> "_Watched":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()


class _Stderr(asyncio.Protocol):
    """Keeps the end of what a program says on standard error. `sink` is what it writes to."""

    def __init__(self, sink: TextIO) -> None:
        self.sink = sink
        self._tail = b""
        self._closed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._tail = (self._tail + data)[-_TAIL_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()

    async def stderr_note(self) -> str:
        self.sink.close()
        try:
            async with asyncio.timeout(_STDERR_MOMENT):
                await self._closed.wait()
        except TimeoutError:
            pass  # something that the program started still holds it open
        text = self._tail.decode("utf-8", "replace").strip()
        return f". It said: {text}" if text else ""


@asynccontextmanager
async def _stderr() -> AsyncIterator[_Stderr]:
    read_end, write_end = os.pipe()
    with os.fdopen(write_end, "w") as sink:
        errors = _Stderr(sink)
        transport = PipeReader(read_end, errors)
        try:
            yield errors
        finally:
            transport.close()
