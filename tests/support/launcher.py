"""An `opensession` for shells, editors and terminals: it has this process fork the program, see forked.py, and stands for it."""

import atexit
import json
import os
import shutil
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from functools import cache
from multiprocessing import connection
from pathlib import Path

import psutil
from forked import Forked

_STAND_IN = """#!{python} -IS
import json, os, signal, socket, sys

passed_on = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
signal.pthread_sigmask(signal.SIG_BLOCK, passed_on)
launcher = socket.socket(socket.AF_UNIX)
launcher.connect({address!r})
asked = json.dumps([os.getpid(), sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(launcher, [len(asked).to_bytes(4, "big")], [0, 1, 2])
launcher.sendall(asked)
answers = launcher.makefile()
pid = int(answers.readline())
for number in passed_on:
    signal.signal(number, lambda number, _: os.kill(pid, number))
signal.pthread_sigmask(signal.SIG_UNBLOCK, passed_on)
code = int(answers.readline())
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
"""It passes signals on and ends as the fork does. When it is killed, so is the fork."""

_pids: dict[int, int] = {}


def pid_of(stand_in: int) -> int:
    """Of the process that one of these stands for; of another, its own."""
    return _pids.get(stand_in, stand_in)


@cache
def opensession() -> str:
    """The program. It has this checkout's code whatever its environment says."""
    directory = Path(tempfile.mkdtemp(prefix="opensession-tests-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(directory / "socket"))
    listener.listen()
    threading.Thread(target=_serve, args=[listener], daemon=True).start()
    program = directory / "opensession"
    program.write_text(_STAND_IN.format(python=os.path.realpath(sys.executable), address=str(directory / "socket")))
    program.chmod(0o755)
    return str(program)


def _serve(listener: socket.socket) -> None:
    while True:
        asking, _ = listener.accept()
        threading.Thread(target=_launch, args=[asking], daemon=True).start()


def _launch(asking: socket.socket) -> None:
    with asking:
        size, files, _, _ = socket.recv_fds(asking, 4, 3)
        stand_in, arguments, directory, environment = json.loads(asking.recv(int.from_bytes(size, "big"), socket.MSG_WAITALL))
        forked = Forked(arguments, directory, environment, files)
        for file in files:
            os.close(file)
        _pids[stand_in] = forked.pid
        asking.sendall(b"%d\n" % forked.pid)
        if forked.sentinel not in connection.wait([forked.sentinel, asking]):
            with suppress(psutil.NoSuchProcess):
                forked.kill()
        with suppress(OSError):
            asking.sendall(b"%d\n" % forked.wait())
