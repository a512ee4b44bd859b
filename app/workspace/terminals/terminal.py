"""One terminal: a program in a pseudo-terminal of the kernel, its output, and the clients that watch."""

import asyncio
import codecs
import fcntl
import os
import struct
import termios
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from app.project.sandbox.scope import Program
from app.schema.terminal import Pty, PtySize, PtyUpdate
from app.tools.process import end_group, end_marked, spawn
from app.util import processes

LIMIT_BYTES = 2 * 1024 * 1024
PIECE_BYTES = 128 * 1024
"""Bytes that are read at a time: 65,536 units."""
_UNIT = 2


class Scrollback:
    """Text by position: the number of UTF-16 units before it, as JavaScript counts a string's length.

    Kept as UTF-16, so that a position is an offset. The oldest text above LIMIT_BYTES is dropped.
    """

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit = limit_bytes
        self._kept = bytearray()
        self.start = 0

    @property
    def end(self) -> int:
        return self.start + len(self._kept) // _UNIT

    def append(self, text: str) -> None:
        self._kept += text.encode("utf-16-le")
        excess = len(self._kept) - self._limit
        if excess > 0:
            excess += excess % _UNIT
            del self._kept[:excess]
            self.start += excess // _UNIT

    def read(self, position: int) -> tuple[str, int]:
        """Text from a position that is kept, at most PIECE_BYTES of it, and the position after it. A character that lost its
        first half is replaced."""
        offset = (position - self.start) * _UNIT
        piece = self._kept[offset : offset + PIECE_BYTES]
        if len(piece) == PIECE_BYTES and 0xD8 <= piece[-1] <= 0xDB:  # the first of a surrogate pair
            del piece[-_UNIT:]
        return piece.decode("utf-16-le", "replace"), position + len(piece) // _UNIT


DEFAULT_SIZE = PtySize(rows=24, cols=80)
READ_BYTES = 64 * 1024
"""Bytes that are read at once. A program that prints more waits, so that it does not keep the server busy."""
PAUSE_SECONDS = 0.01
INPUT_BYTES = 1024 * 1024
"""Input that may wait for a program that does not read."""
LAST_OUTPUT_SECONDS = 0.2
"""How long processes left in the background may go on printing after the program has exited."""
_TAKE_TERMINAL = ': <>"$0"; exec "$@"'
"""The leader of a session gets the first terminal that it opens as its own: so Ctrl-C and Ctrl-Z work, and it receives resizes.
In the sandbox the program is another session's leader, and takes the terminal itself."""


class InputFull(Exception):
    """The program reads nothing, and INPUT_BYTES wait for it."""


class PseudoTerminal:
    """`on_output` is called with each piece that the program prints, on the event loop."""

    def __init__(self, master: int, process: Process, program: Program, mark: str, on_output: Callable[[bytes], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._master = master
        self._process = process
        self._program = program
        self._mark = mark
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
            mark = processes.new_mark()
            words = () if program.is_confined else ("/bin/sh", "-c", _TAKE_TERMINAL, os.ttyname(slave))
            started = replace(program, argv=(*words, *program.argv))
            process = await spawn(started, mark, stdin=slave, stdout=slave, stderr=slave)
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)
        return cls(master, process, program, mark, on_output)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def exited(self) -> int:
        """The exit code, when the program has exited and its output was read."""
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
        await end_marked(self._program, self._mark)
        await end_group(self._process, self._program.is_confined)

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
        """Empty if there is nothing now, and always once no process has the terminal open."""
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


def _resize(terminal: int, size: PtySize) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size.rows, size.cols, 0, 0))


@dataclass(eq=False)
class Terminal:
    """`owner`: the terminal's user, empty without users. `stays`: it is listed when its program has exited, until it is removed.

    A client that reads slowly costs nothing: it reads from the scrollback, and misses what that no longer has.
    """

    info: Pty
    directory: str
    owner: str
    stays: bool
    scrollback: Scrollback = field(default_factory=Scrollback)

    def __post_init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._news = asyncio.Event()
        self.program: PseudoTerminal
        """Set by `start`."""

    async def start(self, program: Program) -> None:
        """Raises OSError, and ValueError for words with NUL."""
        self.program = await PseudoTerminal.start(program, self._printed)
        self.info.pid = self.program.pid

    @property
    def is_running(self) -> bool:
        return self.info.status == "running"

    def mark_exited(self, code: int) -> None:
        """Clients are sent the output that they still miss, then the end."""
        self.info.status, self.info.exit_code = "exited", code
        self._tell()

    def update(self, wanted: PtyUpdate) -> None:
        self.info.title = wanted.title or self.info.title
        if wanted.size:
            self.program.resize(wanted.size)

    async def watch(self, cursor: int) -> AsyncIterator[str | int]:
        """The output from `cursor` on (-1: none), or from the nearest position that is kept, then new output until the program
        exits. Among it the client's position, a number: once where new output begins, and after each piece that was left out."""
        kept, known = self.scrollback, False
        position = kept.end if cursor == -1 else min(max(cursor, kept.start), kept.end)
        while True:
            news = self._news
            if position < kept.start:
                position = kept.start
                yield position
            elif position < kept.end:
                text, position = kept.read(position)
                yield text
            elif not known:
                known = True
                yield position
            elif self.is_running:
                await news.wait()
            else:
                return

    def _printed(self, data: bytes) -> None:
        if text := self._decoder.decode(data):
            self.scrollback.append(text)
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
