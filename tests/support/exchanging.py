"""A name that leads by turns to itself and elsewhere, while something else goes on."""

import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
exchanges = pytest.mark.skipif(sys.platform != "linux", reason="two names are exchanged at once on Linux only")


@contextmanager
def exchanging(place: Path, target: Path, pause: float = 0.001) -> Iterator[None]:
    """`place` is now what it was, now a link to `target`, and never nothing. `pause`: seconds between two exchanges."""
    over, link = threading.Event(), place.with_name(f"{place.name}-link")
    link.symlink_to(target)
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    names = (_AT_FDCWD, os.fsencode(place), _AT_FDCWD, os.fsencode(link), _RENAME_EXCHANGE)

    def swap() -> None:
        while not over.is_set():
            assert exchange(*names) == 0
            time.sleep(pause)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        yield
    finally:
        over.set()
        swapper.join()
        if place.is_symlink():
            assert exchange(*names) == 0
        link.unlink()
