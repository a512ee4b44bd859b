"""A real server that a test may kill and start again, always at the same address, and whose use of memory it may look at."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from running_server import (
    ROOT,
    START_SECONDS,
    clean_environment,
    free_port,
    new_workspace,
    start_serving,
    stop,
    wait_until_it_answers,
)

MIB = 1024 * 1024


def peak_memory(process: psutil.Popen) -> int:
    """The most that a process has had, in bytes, since `forget_peak`."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def forget_peak(process: psutil.Popen) -> None:
    Path(f"/proc/{process.pid}/clear_refs").write_text("5")


class ServerProcess:
    def __init__(self, workspace: Path, environment: dict[str, str], log: Path) -> None:
        self.workspace, self.environment, self._log = workspace, environment, log
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def start(self, seconds: float = START_SECONDS) -> None:
        """Returns when it answers."""
        self.process = start_serving(self.workspace, self.environment, self._log, self.port)
        wait_until_it_answers(self.process, self.url, self._log, seconds)

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        stop(self.process)


class RealServer(ServerProcess):
    def __init__(self, base: Path, environment: dict[str, str]) -> None:
        self.data = base / "data"
        (base / "home").mkdir(parents=True)
        settings = {"OPENSESSION_DATA_DIR": str(self.data), "PYTHONPATH": str(ROOT), **environment}
        super().__init__(new_workspace(base / "workspace"), clean_environment(base / "home", **settings), base / "server.log")

    @property
    def memory(self) -> int:
        """Resident, in bytes."""
        return self.process.memory_info().rss

    @property
    def descriptors(self) -> int:
        """Open files and sockets."""
        return self.process.num_fds()

    def tracebacks(self) -> list[str]:
        """What of the log tells of an error that nobody expected; what clients ask to be noted is none."""
        return re.findall(r"^(?:Traceback|ERROR:|\S+ \S+ ERROR (?!client:)).*$", self.log, re.MULTILINE)


@contextmanager
def real_server(base: Path, **environment: str) -> Iterator[RealServer]:
    server = RealServer(base, environment)
    server.start()
    try:
        yield server
    finally:
        server.stop()
