"""What a fork of a process that has imported the program does to be the program."""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from app.cli import main

_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir")
_FLAGS = (os.O_RDONLY, *[os.O_WRONLY | os.O_APPEND | os.O_CREAT] * 2)


def descriptor_of(passed: Any) -> int:
    """Here, of one that `forked.Given` has passed on."""
    return int(passed.detach())


def run(arguments: Sequence[str], directory: Path, environment: Mapping[str, str], files: Sequence[Path | int]) -> None:
    """`files`: what standard input, output and error are."""
    for number, (file, flags) in enumerate(zip(files, _FLAGS, strict=True)):
        opened = file if isinstance(file, int) else os.open(file, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = ["opensession", *arguments]
    sys.path[:] = [path for path in sys.path if "/tests" not in path]
    main()


def run_until_killed(number: int, below: Path, *told: Any) -> None:
    """As `run`, but it is killed (SIGKILL) right before the Nth time that it changes a name below a directory."""
    counted = count(1)

    def kill_in_time(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _CHANGES and str(arguments[0]).startswith(str(below)) and next(counted) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill_in_time)
    run(*told)


def run_interrupted(sent: signal.Signals, times: int, *told: Any) -> None:
    """As `run`, but the server is sent a signal so often while it starts."""
    from app.workspace.workspaces import Workspaces

    signal.signal(signal.SIGINT, signal.default_int_handler)  # what starts the tests may have it ignored
    start = Workspaces.start

    async def interrupted(started: Workspaces) -> None:
        for _ in range(times):
            os.kill(os.getpid(), sent)
        await start(started)

    Workspaces.start = interrupted
    run(*told)
