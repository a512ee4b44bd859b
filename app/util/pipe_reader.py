"""Reads a pipe in the event loop.

uvloop's `connect_read_pipe` is not used: it closes the descriptor twice, and the second time it may close a file that another
thread has opened meanwhile, such as the database.
"""

import asyncio
import os

_CHUNK = 65536


class PipeReader(asyncio.ReadTransport):
    """Owns the descriptor: closes it at the end of the pipe or in `close`."""

    def __init__(self, descriptor: int, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._closed = False
        os.set_blocking(descriptor, False)
        protocol.connection_made(self)
        self.resume_reading()

    def pause_reading(self) -> None:
        if not self._closed:
            self._loop.remove_reader(self._descriptor)

    def resume_reading(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._descriptor, self._read)

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if self._closed:
            return
        self._loop.remove_reader(self._descriptor)
        self._closed = True
        os.close(self._descriptor)
        self._loop.call_soon(self._protocol.connection_lost, None)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return
        if data:
            self._protocol.data_received(data)
        else:
            self._protocol.eof_received()
            self.close()
