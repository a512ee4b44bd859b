"""A pipe read in either event loop: all of it comes, and its descriptor is closed once."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop

from app.util.processes import PipeReader

LOOPS = [pytest.param(uvloop.new_event_loop, id="uvloop"), pytest.param(asyncio.new_event_loop, id="asyncio")]
Loop = Callable[[], asyncio.AbstractEventLoop]


@asynccontextmanager
async def pipe() -> AsyncIterator[tuple[asyncio.StreamReader, int, PipeReader, int]]:
    """The reader, the pipe's two ends and the transport between them."""
    source, sink = os.pipe()
    reader = asyncio.StreamReader()
    yield reader, sink, PipeReader(source, asyncio.StreamReaderProtocol(reader)), source


def is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def run(loop: Loop, test: Callable[[], object]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(test())  # type: ignore[arg-type]


@pytest.mark.parametrize("loop", LOOPS)
def test_all_that_is_written_is_read(loop: Loop) -> None:
    async def test() -> None:
        async with pipe() as (reader, sink, _, source):
            written = os.urandom(1_000_000)
            feeding = asyncio.create_task(asyncio.to_thread(feed, sink, written))
            assert await reader.read() == written
            await feeding
            assert not is_open(source)

    run(loop, test)


def feed(sink: int, data: bytes) -> None:
    with os.fdopen(sink, "wb") as file:
        file.write(data)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_file_that_gets_its_number_stays_open(loop: Loop) -> None:
    async def test() -> None:
        async with pipe() as (reader, sink, transport, source):
            transport.close()
            again = os.open(os.devnull, os.O_RDONLY)
            assert again == source
            transport.close()
            os.close(sink)
            assert await reader.read() == b""
            assert is_open(again)
            os.close(again)

    run(loop, test)


def test_nobody_uses_the_loops_own() -> None:
    app = Path(__file__).parents[3] / "app"
    uses = [path.name for path in app.rglob("*.py") if "connect_read_pipe(" in path.read_text()]
    assert uses == []
