"""Imports without a part of a library that nothing here uses."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType


@contextmanager
def left_out(module: str, *names: str) -> Iterator[None]:
    """What is imported meanwhile finds an empty `module`, whose `names` are None, if nobody has loaded it yet. Who imports it
    afterwards gets it."""
    if module in sys.modules:
        yield
        return
    sys.modules[module] = empty = ModuleType(module)
    vars(empty).update(dict.fromkeys(names))
    try:
        yield
    finally:
        del sys.modules[module]
