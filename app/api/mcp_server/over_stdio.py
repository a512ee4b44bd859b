"""MCP over standard input and output, for the program that started this one."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext, suppress

import orjson
from mcp.server.stdio import stdio_server

from app.api.client.client import ApiClient
from app.api.mcp_server.server import SessionsServer
from app.util.bounds import parse_json
from app.util.processes import PipeReader

LONGEST_LINE = 32 * 1024 * 1024


async def serve(api: ApiClient) -> None:
    """Serves until standard input ends, or a signal; turns that were prompted here and still run are aborted then."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    server = SessionsServer(lambda _: nullcontext(api)).server()
    lines = _lines(_standard_input())
    async with stdio_server(stdin=lines) as (read, write):  # type: ignore[arg-type]  # it only reads line by line
        await server.run(read, write, server.create_initialization_options())


def _standard_input() -> asyncio.StreamReader:
    """Not read in a thread, as the SDK does: a signal could not end the process while that thread reads."""
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    PipeReader(os.dup(sys.stdin.fileno()), asyncio.StreamReaderProtocol(reader))
    return reader


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[str]:
    """Without those that are too long. The SDK answers no request with half a character."""
    while True:
        try:
            line = await reader.readline()
        except ValueError:
            print(f"A line of more than {LONGEST_LINE} bytes is passed over", file=sys.stderr)
            continue
        if not line:
            return
        with suppress(ValueError):
            line = orjson.dumps(parse_json(line)) if b"\\ud" in line.lower() else line
        yield line.decode(errors="replace")
