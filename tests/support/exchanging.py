"""Names whose target changes again and again, in a thread, while something else goes on."""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
exchanges = pytest.mark.skipif(sys.platform != "linux", reason="two names are exchanged at once on Linux only")


@contextmanager
def repeating(step: Callable[[], None]) -> Iterator[None]:
    """Another thread does the step again and again; the last one is done to its end."""
    over = threading.Event()

    def repeat() -> None:
        while not over.is_set():
            step()

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def exchanging(place: Path, target: Path, pause: float = 0.001) -> Iterator[None]:
    """`place` is now what it was, now a link to `target`, and never nothing. `pause`: seconds between two exchanges."""
    link = place.with_name(f"{place.name}-link")
    link.symlink_to(target)
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    names = (_AT_FDCWD, os.fsencode(place), _AT_FDCWD, os.fsencode(link), _RENAME_EXCHANGE)

    def swap() -> None:
        assert exchange(*names) == 0
        time.sleep(pause)

    try:
        with repeating(swap):
            yield
    finally:
        if place.is_symlink():
            assert exchange(*names) == 0
        link.unlink()
