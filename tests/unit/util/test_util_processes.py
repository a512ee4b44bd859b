"""Processes: which are gone, and which a server that is gone has left behind."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from app.util import processes


def test_a_process_lives_until_it_ends_and_a_later_one_with_its_number_is_another() -> None:
    own = processes.this_process()
    assert processes.is_gone(own) is False and processes.this_process() != own
    ended = subprocess.Popen(["true"])
    ended.wait()
    for pid, started in ((ended.pid, 123), (os.getpid(), 1)):
        assert processes.is_gone(f"{processes.pid_namespace()}:{pid}:{started}:x") is True


def test_of_a_process_of_another_machine_or_container_nothing_is_known() -> None:
    host = socket.gethostname()
    for name in ("elsewhere:1:1:x", f"{host}:1:1:x", f"{host}/1:1:1:x", "", "no colons", "a:b:c"):
        assert processes.is_gone(name) is None, name


SECONDS = f"61.{os.getpid()}"
"""Of this run's process alone."""

needs_proc = pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="only /proc tells the environment of processes")

GONE = f"{processes.pid_namespace()}:999999999:1:abcd:1"


Started = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Started]:
    started: list[subprocess.Popen[bytes]] = []

    def start(mark: str, script: str = "echo up; exec sleep 60") -> subprocess.Popen[bytes]:
        environment = {"PATH": os.environ["PATH"], processes.VARIABLE: mark}
        process = subprocess.Popen(["/bin/sh", "-c", script], env=environment, stdout=subprocess.PIPE, start_new_session=True)
        started.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"up\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@needs_proc
def test_processes_of_a_server_that_is_gone_are_ended_and_no_others(start: Started) -> None:
    abandoned, stubborn = start(GONE), start(GONE, "trap '' TERM; echo up; while :; do sleep 0.05; done")
    this_process, of_another_host = start(processes.new_mark()), start("elsewhere:1:1:abcd:1")
    processes.end_abandoned()  # or a server that a test beside this one starts has done it
    assert abandoned.wait(2) and stubborn.wait(2)
    assert this_process.poll() is None and of_another_host.poll() is None


@needs_proc
def test_processes_with_a_bare_environment_are_known_by_their_session(start: Started) -> None:
    start(GONE, f"env -i sleep {SECONDS} & echo up; wait")
    deadline = time.monotonic() + 60
    while not sleeping():
        assert time.monotonic() < deadline
    processes.end_abandoned()
    while left := sleeping():
        assert time.monotonic() < deadline, left


def sleeping() -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cmdline"]) if SECONDS in (process.info["cmdline"] or [])]


def test_marks_name_this_process_and_differ() -> None:
    first, second = processes.new_mark(), processes.new_mark()
    assert first != second and f":{os.getpid()}:" in first
