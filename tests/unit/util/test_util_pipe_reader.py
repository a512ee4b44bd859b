"""A pipe read in either event loop: all of it comes, and its descriptor is closed once."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from app.util.processes import pipe, read_pipe

LOOPS = pytest.mark.parametrize("loop", [uvloop.new_event_loop, asyncio.new_event_loop], ids=["uvloop", "asyncio"])
Loop = Callable[[], asyncio.AbstractEventLoop]


def run(loop: Loop, test: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(test)


@LOOPS
def test_all_that_is_written_is_read(loop: Loop) -> None:
    async def test() -> None:
        written = os.urandom(1_000_000)
        async with pipe() as (output, sink):
            feeding = asyncio.create_task(asyncio.to_thread(lambda: (sink.write(written), sink.close())))
            assert await output.read() == written
            await feeding

    run(loop, test())


@LOOPS
def test_its_descriptor_is_closed_once(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Python or, within uvloop, by libuv: what closes it after that closes whatever file has its number by then."""
    closed, close = list[int](), os.close
    monkeypatch.setattr(os, "close", lambda descriptor: (closed.append(descriptor), close(descriptor)))

    async def test() -> None:
        source, sink = os.pipe()
        reader, transport = await read_pipe(source, 2**16)
        transport.close()
        assert await reader.read() == b""
        with pytest.raises(OSError):
            os.fstat(source)
        assert closed == ([] if loop is uvloop.new_event_loop else [source])
        close(sink)

    run(loop, test())


@LOOPS
def test_what_cannot_be_waited_for_is_refused(loop: Loop) -> None:
    async def test() -> None:
        for name in (os.devnull, __file__):
            with open(name, "rb") as file, pytest.raises(ValueError):
                await read_pipe(file.fileno(), 2**16)

    run(loop, test())


def test_nobody_uses_the_loops_own() -> None:
    app = Path(__file__).parents[3] / "app"
    using = [path.name for path in app.rglob("*.py") if "connect_read_pipe(" in path.read_text()]
    assert using == ["processes.py"]
