"""This checkout's program, forked from a process that has imported it: importing is most of what a start costs."""

import multiprocessing
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import connection, reduction
from pathlib import Path
from typing import Any

import forked_program
import psutil

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-m", "app.cli"]

_IMPORTED = [
    *(
        "alembic.command",
        "app.cli",
        "app.cli.acp.stdio",
        "app.cli.prompt_run",
        "app.http_server",
        "app.main",
        "app.providers.scripted_rules",
    ),
    *("app.api.client.asgi_transport", "anyio._backends._asyncio", "limits.aio.strategies", "openai", "psycopg", "redis.asyncio"),
]


class Forked(psutil.Process):
    """As an ended process, like psutil.Popen, it tells how it ended."""

    _context = multiprocessing.get_context("forkserver")
    _context.set_forkserver_preload(_IMPORTED)
    _lock = threading.Lock()

    def __init__(
        self,
        arguments: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        files: Sequence[Path | int],
        run: Callable[..., None] = forked_program.run,
    ) -> None:
        """`files`: what standard input, output and error are, each a file or a descriptor of this process."""
        self.args, self._environment = [*PROGRAM, *arguments], dict(environment)
        given = [Given(file) if isinstance(file, int) else file for file in files]
        self._process = self._context.Process(target=run, args=(arguments, directory, environment, given), daemon=True)
        with self._lock:
            self._process.start()
        super().__init__(self._process.pid)

    @staticmethod
    def can_be(command: Sequence[str], environment: Mapping[str, str]) -> bool:
        """Whether it is this program, and begins as it does for everyone."""
        return [*command[:3]] == PROGRAM and environment.get("PYTHONPATH") == str(ROOT) and "LD_PRELOAD" not in environment

    @property
    def sentinel(self) -> int:
        """Readable when it has ended."""
        return self._process.sentinel

    def environ(self) -> dict[str, str]:
        return self._environment

    def poll(self) -> int | None:
        with self._lock:
            return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int | None:
        if not connection.wait([self.sentinel], timeout):
            raise psutil.TimeoutExpired(timeout or 0, self.pid)
        return self.poll()


class Given:
    """A descriptor that is passed on to the fork."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any]]:
        return forked_program.descriptor_of, (reduction.DupFd(self._descriptor),)
