"""One terminal: its program, what it has printed, and the clients that watch."""

import asyncio
import codecs
from app.pty.pseudo_terminal import PseudoTerminal
from app.pty.scrollback import Scrollback
from app.sandbox.scope import Program
from app.schema.terminal import Pty
from app.schema.terminal import PtyUpdate
from collections.abc import AsyncIterator
from dataclasses import dataclass
from dataclasses import field


@dataclass(frozen=True, slots=True)
class OutputPosition:
    """Where a client that watches is in what was printed: at the end of what it missed, and behind what it could not be sent."""

    units: int


@dataclass(eq=False)
class Terminal:
    """`owner`: the user whose it is, empty without users. `stays`: it is listed when its program has exited, until it is removed.

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
        self._pseudo_terminal: PseudoTerminal

    async def start(self, program: Program) -> None:
        """Raises OSError, and ValueError for words with NUL."""
        self._pseudo_terminal = await PseudoTerminal.start(program, self._printed)
        self.info.pid = self._pseudo_terminal.pid

    @property
    def is_running(self) -> bool:
        return self.info.status == "running"

    async def exited(self) -> int:
        return await self._pseudo_terminal.exited()

    async def end(self) -> None:
        await self._pseudo_terminal.end()

    def mark_exited(self, code: int) -> None:
        """Clients are sent what they miss still, and no more."""
        self.info.status, self.info.exit_code = "exited", code
        self._tell()

    def type(self, data: bytes) -> None:
        """Raises InputFull."""
        self._pseudo_terminal.write(data)

    def update(self, wanted: PtyUpdate) -> None:
        self.info.title = wanted.title or self.info.title
        if wanted.size:
            self._pseudo_terminal.resize(wanted.size)

    async def watch(self, cursor: int) -> AsyncIterator[str | OutputPosition]:
        """What was printed from `cursor` on (-1: nothing), the position, then what is printed until the program exits."""
        kept, position, known = self.scrollback, self._start(cursor), False
        while True:
            news = self._news
            if position < kept.start:
                position = kept.start
                yield OutputPosition(position)
            elif position < kept.end:
                text, position = kept.read(position)
                yield text
            elif not known:
                known = True
                yield OutputPosition(position)
            elif self.is_running:
                await news.wait()
            else:
                return

    def _start(self, cursor: int) -> int:
        """A cursor that was never given reads as the first."""
        kept = self.scrollback
        return kept.end if cursor == -1 else min(max(cursor, kept.start), kept.end)

    def _printed(self, data: bytes) -> None:
        if text := self._decoder.decode(data):
            self.scrollback.append(text)
            self._tell()

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
