"""An MCP server that runs as a local program, over its standard input and output."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TextIO

from anyio import CancelScope
from mcp import StdioServerParameters
from mcp.client._transport import ReadStream, TransportStreams

from app.mcp.program_streams import ReceivedMessage, program_streams
from app.mcp.target import McpTarget
from app.mcp.values import McpFailure
from app.mcp.watch import McpWatch
from app.schema.config import McpLocalConfig
from app.util import processes
from app.util.bounds import AnswerPassedLimit
from app.util.processes import PipeReader

MOST_UNREADABLE = 100
"""Lines that are no messages; some programs print a greeting, but one that prints for ever is no server."""
_TAIL_BYTES = 2000
_STDERR_MOMENT = 0.2
"""Seconds that a program's last words on standard error may take to arrive after it has ended."""


@asynccontextmanager
async def streams(target: McpTarget, config: McpLocalConfig, watch: McpWatch) -> AsyncIterator[TransportStreams]:
    """Raises McpFailure when the program cannot be started; tells the watch when its output ends, with its last words."""
    command = config.command[0]
    mark = processes.new()
    async with _stderr() as errors:
        try:
            program = await asyncio.to_thread(_program, target, config, mark)
            async with program_streams(program, errors.sink) as (read, write):
                yield _Watched(read, watch, errors), write
        except (OSError, ValueError) as error:
            raise McpFailure(f"{command} could not be started: {error}") from error
        finally:
            with CancelScope(shield=True):  # the SDK ends the process group, but not what left it
                await asyncio.to_thread(processes.end, lambda found: found == mark)


def _program(target: McpTarget, config: McpLocalConfig, mark: str) -> StdioServerParameters:
    env = {**target.environment, **config.environment}
    cwd = _working_directory(target, config.cwd) if config.cwd else None
    program = target.sandbox.program(config.command, target.workspace, env, cwd=cwd, shows_named=True)
    command, *arguments = program.argv
    outside = {**(program.env or {}), processes.VARIABLE: mark}
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
