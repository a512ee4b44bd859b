"""Runs `opensession`, and kills it (SIGKILL) right before the Nth time that it changes a name below a directory:

python killed_at.py N DIRECTORY COMMAND…
"""

import os
import signal
import sys
from itertools import count
from typing import Any

from app.cli import app

_CHANGES = ("os.mkdir", "os.rename", "os.remove", "os.rmdir")
_number, _directory = int(sys.argv[1]), sys.argv[2]
_counted = count(1)


def _kill_in_time(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _CHANGES and str(arguments[0]).startswith(_directory) and next(_counted) == _number:
        os.kill(os.getpid(), signal.SIGKILL)


sys.addaudithook(_kill_in_time)
app(sys.argv[3:])
