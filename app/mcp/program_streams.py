"""The messages of a program that is an MCP server, a line each. The SDK's own way has no bound on a line."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TextIO

import anyio
from anyio import BrokenResourceError, ClosedResourceError
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import StdioServerParameters
from mcp.client._transport import TransportStreams
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from app.util import bounds
from app.util.bounds import AnswerPassedLimit, require_few_values

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
        limit=bounds.MAX_EVENT_BYTES,
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
        return AnswerPassedLimit(f"A line of the server has more than {bounds.MAX_EVENT_BYTES} bytes")


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
