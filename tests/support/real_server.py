"""A real server that a test may kill and start again, always at the same address, and whose use of memory it may look at."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from running_server import ROOT, clean_environment, free_port, new_workspace, start_serving, stop, wait_until_it_answers

MIB = 1024 * 1024


class RealServer:
    def __init__(self, base: Path, environment: dict[str, str]) -> None:
        self.workspace = new_workspace(base / "workspace")
        self.data = base / "data"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = base / "server.log"
        (base / "home").mkdir()
        self._environment = clean_environment(
            base / "home", OPENSESSION_DATA_DIR=str(self.data), PYTHONPATH=str(ROOT), **environment
        )

    def start(self) -> None:
        self.process = start_serving(self.workspace, self._environment, self._log, self.port)
        wait_until_it_answers(self.process, self.url, self._log)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        stop(self.process)

    @property
    def memory(self) -> int:
        """Resident, in bytes."""
        found: int = self.process.memory_info().rss
        return found

    @property
    def descriptors(self) -> int:
        """Open files and sockets."""
        found: int = self.process.num_fds()
        return found

    def tracebacks(self) -> list[str]:
        """What of the log tells of an error that nobody expected; what clients ask to be noted is none."""
        log = self._log.read_text(errors="replace")
        return re.findall(r"^(?:Traceback|ERROR:|\S+ \S+ ERROR (?!client:)).*$", log, re.MULTILINE)


@contextmanager
def real_server(base: Path, **environment: str) -> Iterator[RealServer]:
    server = RealServer(base, environment)
    server.start()
    try:
        yield server
    finally:
        server.stop()
