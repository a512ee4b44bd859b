"""A Redis of the tests' own: it keeps nothing, and can be stopped and started again on its port."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from running_server import free_port, needed, skip_or_fail

START_SECONDS = 10


class RedisServer:
    def __init__(self, port: int | None = None) -> None:
        self.port = port or free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._program = needed("redis-server")

    def start(self) -> None:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"]
        self._process = subprocess.Popen([self._program, *options], cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None and time.monotonic() < deadline, "Redis did not start"
            time.sleep(0.02)

    def stop(self) -> None:
        """As a crash does: connections break, new ones are refused."""
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Connections stay open and nothing answers."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def wake(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(7) == b"+PONG\r\n"
        except OSError:
            return False


@contextmanager
def running_redis(port: int | None = None) -> Iterator[RedisServer]:
    """Skips where Redis or redis-py is missing."""
    if find_spec("redis") is None:
        skip_or_fail("redis-py is not installed")
    server = RedisServer(port)
    server.start()
    try:
        yield server
    finally:
        server.stop()
