"""This process as an ordinary user, who has no right to what is another's, also where tests run as root."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ORDINARY = 54321


@contextmanager
def ordinary_user(*groups: int) -> Iterator[Path]:
    """A directory of theirs; they are in the `groups`, too, if tests run as root."""
    with tempfile.TemporaryDirectory() as directory:
        if os.geteuid() != 0:
            yield Path(directory).resolve()
            return
        os.chown(directory, ORDINARY, ORDINARY)
        before = os.getgroups()
        os.setgroups(groups)
        os.setegid(ORDINARY)
        os.seteuid(ORDINARY)
        try:
            yield Path(directory).resolve()
        finally:
            os.seteuid(0)
            os.setegid(0)
            os.setgroups(before)
