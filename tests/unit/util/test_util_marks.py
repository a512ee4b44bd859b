import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.util import processes

SECONDS = f"61.{os.getpid()}"
"""Of this run's process alone."""

pytestmark = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="only /proc tells the environment of processes")

GONE = f"{processes.pid_namespace()}:999999999:1:abcd:1"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def start(started: list[subprocess.Popen[bytes]], mark: str, script: str = "echo up; exec sleep 60") -> subprocess.Popen[bytes]:
    environment = {"PATH": os.environ["PATH"], processes.VARIABLE: mark}
    process = subprocess.Popen(["/bin/sh", "-c", script], env=environment, stdout=subprocess.PIPE, start_new_session=True)
    started.append(process)
    assert process.stdout is not None and process.stdout.readline() == b"up\n"
    return process


def test_processes_of_a_server_that_is_gone_are_ended_and_no_others(started: list[subprocess.Popen[bytes]]) -> None:
    abandoned, stubborn = start(started, GONE), start(started, GONE, "trap '' TERM; echo up; while :; do sleep 0.05; done")
    this_process, of_another_host = start(started, processes.new()), start(started, "elsewhere:1:1:abcd:1")
    processes.end_abandoned()  # or a server that a test beside this one starts has done it
    assert abandoned.wait(2) and stubborn.wait(2)
    assert this_process.poll() is None and of_another_host.poll() is None


def test_processes_with_a_bare_environment_are_known_by_their_session(started: list[subprocess.Popen[bytes]]) -> None:
    start(started, GONE, f"env -i sleep {SECONDS} & echo up; wait")
    deadline = time.monotonic() + 60
    while not sleeping():
        assert time.monotonic() < deadline
    processes.end_abandoned()
    while left := sleeping():
        assert time.monotonic() < deadline, left


def sleeping() -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cmdline"]) if SECONDS in (process.info["cmdline"] or [])]


def test_marks_name_this_process_and_differ() -> None:
    first, second = processes.new(), processes.new()
    assert first != second and f":{os.getpid()}:" in first
