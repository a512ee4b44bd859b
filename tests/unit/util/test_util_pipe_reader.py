"""A pipe read in either event loop: all of it comes, and its descriptor is closed once."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from app.util.processes import PipeReader

LOOPS = pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
Loop = Callable[[], asyncio.AbstractEventLoop]


def in_pipe(loop: Loop, test: Callable[[asyncio.StreamReader, int, PipeReader, int], Coroutine[Any, Any, None]]) -> None:
    """`test` gets the reader, where to write, the transport between them, and the end that this reads."""

    async def run() -> None:
        source, sink = os.pipe()
        reader = asyncio.StreamReader()
        await test(reader, sink, PipeReader(source, asyncio.StreamReaderProtocol(reader)), source)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


@LOOPS
def test_all_that_is_written_is_read(loop: Loop) -> None:
    async def test(reader: asyncio.StreamReader, sink: int, _: PipeReader, source: int) -> None:
        written = os.urandom(1_000_000)
        with os.fdopen(sink, "wb") as file:
            feeding = asyncio.create_task(asyncio.to_thread(lambda: (file.write(written), file.close())))
            assert await reader.read() == written
            await feeding
        with pytest.raises(OSError):
            os.fstat(source)

    in_pipe(loop, test)


@LOOPS
def test_a_file_that_gets_its_number_stays_open(loop: Loop) -> None:
    async def test(reader: asyncio.StreamReader, sink: int, transport: PipeReader, source: int) -> None:
        transport.close()
        again = os.open(os.devnull, os.O_RDONLY)
        assert again == source
        transport.close()
        os.close(sink)
        assert await reader.read() == b""
        os.fstat(again)
        os.close(again)

    in_pipe(loop, test)


def test_nobody_uses_the_loops_own() -> None:
    app = Path(__file__).parents[3] / "app"
    assert [path.name for path in app.rglob("*.py") if "connect_read_pipe(" in path.read_text()] == []
