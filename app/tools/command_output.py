"""The output of a running command: limited in size, published while it runs."""

import asyncio
import codecs
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Self

PREVIEW_CHARACTERS = 30_000
MAX_OUTPUT_BYTES = 10 * 1024 * 1024
PUBLISH_INTERVAL_SECONDS = 0.1


class CommandOutput:
    """The output of a command: the first and the last half of `limit` bytes, and the number of bytes dropped between them.

    `preview` is the beginning for users: at most PREVIEW_CHARACTERS and a mark that it was cut.
    """

    def __init__(self, limit: int = MAX_OUTPUT_BYTES) -> None:
        self._half = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._preview = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, chunk: bytes) -> None:
        if len(self._preview) <= PREVIEW_CHARACTERS:
            self._preview += self._decoder.decode(chunk)
        room = max(self._half - len(self._head), 0)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        excess = max(len(self._tail) - self._half, 0)
        del self._tail[:excess]
        self._dropped += excess

    @property
    def preview(self) -> str:
        return cut_preview(self._preview)

    def text(self) -> str:
        if not self._dropped:
            return (self._head + self._tail).decode("utf-8", errors="replace")
        note = f"\n\n... {self._dropped} bytes of output are left out here ...\n\n"
        return self._head.decode("utf-8", errors="replace") + note + self._tail.decode("utf-8", errors="replace")


def cut_preview(text: str) -> str:
    return text if len(text) <= PREVIEW_CHARACTERS else text[:PREVIEW_CHARACTERS] + "\n\n..."


class LivePreview:
    """Publishes a changing text: the first state at once, then the latest state every `interval` seconds.

    Leaving the block publishes the last state, and raises an error of publishing unless the block itself failed.
    """

    def __init__(self, publish: Callable[[str], Awaitable[None]], interval: float = PUBLISH_INTERVAL_SECONDS) -> None:
        self._publish = publish
        self._interval = interval
        self._text = ""
        self._published: str | None = None
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._closing.set()
        self._changed.set()
        await asyncio.wait([self._task])
        if kind is None:
            self._task.result()

    def show(self, text: str) -> None:
        self._text = text
        self._changed.set()

    async def _run(self) -> None:
        while not self._closing.is_set():
            await self._changed.wait()
            self._changed.clear()
            await self._publish_change()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._closing.wait()
        await self._publish_change()

    async def _publish_change(self) -> None:
        if self._text != self._published:
            self._published = self._text
            await self._publish(self._text)
