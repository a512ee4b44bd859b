"""A real server in its own process, workspace and data directory, for clients that know nothing of Python."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from typing import Any

import psutil
import pytest
from forked import PROGRAM, ROOT, Forked

START_SECONDS = 120
STOP_SECONDS = 10


@dataclass
class RunningServer:
    """`process`: the one to be stopped in the end; a test may put another in its place."""

    base: str
    workspace: Path
    data: Path
    process: psutil.Popen

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])


def skip_or_fail(reason: str) -> None:
    """A test that cannot run here is skipped, but CI has all that is needed, so there it fails."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def needed(program: str, path: str | None = None) -> str:
    """Where it is, on the PATH or on `path`; without it the test is skipped, on CI it fails."""
    found = shutil.which(program, path=path)
    if found is None:
        skip_or_fail(f"{program} is not installed")
    assert found is not None
    return found


def this_checkout() -> tuple[list[str], dict[str, str]]:
    """The command that serves this checkout's code, and the environment it needs, with what is installed beside it."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return [*PROGRAM, "serve", "--port", "PORT"], {"PYTHONPATH": str(ROOT), "PATH": path}


def free_port() -> int:
    """None that the system gives to outgoing connections: it is still free when a server starts a little later, or again."""
    for port in iter(lambda: SystemRandom().randrange(12_000, 32_000), 0):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError


def clean_environment(home: Path, **extra: str) -> dict[str, str]:
    """This process's environment without what would configure a server: its flags, keys and home directories."""
    foreign = ("OPENSESSION_", "OPENCODE_", "XDG_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign) and not name.endswith("_API_KEY")}
    return {**kept, "HOME": str(home), **extra}


def new_workspace(directory: Path) -> Path:
    """A git checkout with one commit of one file, `a.txt`."""
    directory.mkdir(parents=True)
    (directory / "a.txt").write_text("hello\nworld\n")
    for command in (
        ["init", "-q", "--template="],
        ["add", "-A"],
        ["-c", "user.email=a@b", "-c", "user.name=a", "commit", "-qm", "first"],
    ):
        subprocess.run(["git", *command], cwd=directory, check=True)
    return directory


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def wait_until_it_answers(process: psutil.Popen, base: str, log: Path, seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not answers(f"{base}/global/health"):
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"The server did not start:\n{log.read_text()}")
        time.sleep(0.05)


def start_serving(
    workspace: Path, environment: dict[str, str], log: Path, port: int, command: Sequence[str] | None = None
) -> psutil.Popen | Forked:
    """This checkout's server, or what `command` starts, in which PORT stands for the port. It may not answer yet."""
    words = command or [*PROGRAM, "serve", "--port", "PORT"]
    argv = [word.replace("PORT", str(port)) for word in words]
    if Forked.can_be(argv, environment):
        return Forked(argv[3:], workspace, environment, [Path(os.devnull), log, log])
    with log.open("ab") as output:
        return psutil.Popen(argv, cwd=workspace, env=environment, stdout=output, stderr=subprocess.STDOUT)


@contextmanager
def serving(command: list[str], directory: Path, environment: dict[str, str] | None = None) -> Iterator[RunningServer]:
    """Run `command`, in which PORT stands for a free port, in a fresh git workspace below `directory` until the block ends."""
    new_workspace(directory / "workspace")
    (directory / "home").mkdir()
    with serving_again(command, directory, free_port(), environment) as running:
        yield running


@contextmanager
def serving_here(directory: Path, *options: str, turns: Any = None, **environment: str) -> Iterator[RunningServer]:
    """This checkout's server. `turns`: what its model plays; without them it goes by rules."""
    directory.mkdir(exist_ok=True)
    command, needed = this_checkout()
    if turns is not None:
        (directory / "script.json").write_text(json.dumps({"turns": turns}))
        needed["OPENSESSION_SCRIPT"] = str(directory / "script.json")
    with serving([*command, *options], directory, needed | environment) as running:
        yield running


@contextmanager
def serving_again(
    command: list[str], directory: Path, port: int, environment: dict[str, str] | None = None
) -> Iterator[RunningServer]:
    """Run it on `port`, with what an earlier one left below `directory`."""
    workspace, data, home, log = (directory / name for name in ("workspace", "data", "home", "server.log"))
    own = clean_environment(home, OPENSESSION_DATA_DIR=str(data), **(environment or {}))
    running = RunningServer(f"http://127.0.0.1:{port}", workspace, data, start_serving(workspace, own, log, port, command))
    try:
        wait_until_it_answers(running.process, running.base, log)
        yield running
    finally:
        stop(running.process)


def stop(process: psutil.Popen) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        process.kill()
        process.wait()
