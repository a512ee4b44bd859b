"""A program in a pseudo-terminal of the kernel: read and written by the event loop, without a thread."""

import asyncio
import fcntl
import os
import struct
import termios
from app.sandbox.scope import Program
from app.schema.terminal import PtySize
from app.tool.process import end_group
from app.tool.process import marked
from app.tool.process import yield_processor
from app.util import processes
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress


DEFAULT_SIZE = PtySize(rows=24, cols=80)
READ_BYTES = 64 * 1024
"""Read at once. A program that prints more is made to wait, so that it does not keep the server from all else."""
PAUSE_SECONDS = 0.01
INPUT_BYTES = 1024 * 1024
"""Input that may wait for a program that does not read."""
LAST_OUTPUT_SECONDS = 0.2
"""How long what is left in the background may go on printing after the program has exited."""
_TAKE_TERMINAL = ': <>"$0"; exec "$@"'
"""The leader of a session gets the first terminal that it opens as its own: Ctrl-C and Ctrl-Z work, and it is told of resizes. In
the sandbox the program is another session's leader, and takes it itself."""


class InputFull(Exception):
    """The program reads nothing, and INPUT_BYTES wait for it."""


class PseudoTerminal:
    """`on_output` is called with each piece that the program prints, on the event loop."""

    def __init__(self, master: int, process: Process, mark: str, is_confined: bool, on_output: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._master = master
        self._process = process
        self._mark = mark
        self._is_confined = is_confined
        self._on_output = on_output
        self._input = bytearray()
        self._hung_up = asyncio.Event()
        self._is_open = True
        self._loop.add_reader(master, self._readable)

    @classmethod
    async def start(cls, program: Program, on_output: Callable[[bytes], None]) -> "PseudoTerminal":
        """Raises OSError, and ValueError for words with NUL."""
        master, slave = os.openpty()
        try:
            os.set_blocking(master, False)
            _resize(master, DEFAULT_SIZE)
            mark = processes.new()
            process = await _spawn(program, slave, mark)
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        return cls(master, process, mark, program.is_confined, on_output)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def exited(self) -> int:
        """The exit code, when the program has exited and what it printed was read."""
        code = await self._process.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_OUTPUT_SECONDS):
                await self._hung_up.wait()
        return 128 - code if code < 0 else code

    def write(self, data: bytes) -> None:
        """Raises InputFull."""
        if len(self._input) + len(data) > INPUT_BYTES:
            raise InputFull
        if self._is_open:
            self._input += data
            self._flush()

    def resize(self, size: PtySize) -> None:
        if self._is_open:
            _resize(self._master, size)

    async def end(self) -> None:
        """Ends the program with all that was started in the terminal. The kernel sends SIGHUP when the terminal is closed."""
        self._close()
        if not self._is_confined:
            await asyncio.to_thread(processes.end, lambda found: found == self._mark)
        await end_group(self._process, self._is_confined)

    def _readable(self) -> None:
        if not self._is_open:
            return
        data = bytearray()
        while len(data) < READ_BYTES and (piece := self._read()):
            data += piece
        if len(data) >= READ_BYTES:
            self._loop.remove_reader(self._master)
            self._loop.call_later(PAUSE_SECONDS, self._resume)
        if data:
            self._on_output(bytes(data))

    def _read(self) -> bytes:
        """Empty when there is nothing now, or, once no process has the terminal open, for ever."""
        try:
            return os.read(self._master, READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            self._loop.remove_reader(self._master)
            self._hung_up.set()
            return b""

    def _resume(self) -> None:
        if self._is_open and not self._hung_up.is_set():
            self._loop.add_reader(self._master, self._readable)
            self._readable()

    def _flush(self) -> None:
        try:
            del self._input[: os.write(self._master, self._input)]
        except BlockingIOError:
            pass
        except OSError:
            self._input.clear()
        if self._input:
            self._loop.add_writer(self._master, self._flush)
        else:
            self._loop.remove_writer(self._master)

    def _close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._loop.remove_reader(self._master)
        self._loop.remove_writer(self._master)
        os.close(self._master)
        self._input.clear()
        self._hung_up.set()


async def _spawn(program: Program, slave: int, mark: str) -> Process:
    first = () if program.is_confined else ("/bin/sh", "-c", _TAKE_TERMINAL, os.ttyname(slave))
    process = await asyncio.create_subprocess_exec(
        *first,
        *program.argv,
        cwd=program.cwd,
        env=marked(program.env, mark),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    if program.is_confined:
        yield_processor(process.pid)
    return process


def _resize(terminal: int, size: PtySize) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.cols, 0, 0))
