"""Records which version of a file a session has read, so that it never overwrites content that it has not read."""

import os
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from app.tool.base import ToolError
from app.util import clock

_CAPACITY = 5_000


class Stamp(NamedTuple):
    """Distinguishes versions of a file without reading it."""

    mtime_ns: int
    size: int

    @classmethod
    def of(cls, status: os.stat_result) -> "Stamp":
        return cls(status.st_mtime_ns, status.st_size)


@dataclass(frozen=True, slots=True)
class _SeenVersion:
    stamp: Stamp
    at_ms: int


class FileTimes:
    """Keeps the newest `capacity` (session, file) pairs; the session has to read a dropped file again. `check_disabled` is
    OPENCODE_DISABLE_FILETIME_CHECK. Methods access the disk only if no stamp is given.
    """

    def __init__(self, *, check_disabled: bool = False, capacity: int = _CAPACITY) -> None:
        self._check_disabled = check_disabled
        self._capacity = capacity
        self._seen: OrderedDict[tuple[str, str], _SeenVersion] = OrderedDict()

    def record(self, session_id: str, path: Path, stamp: Stamp | None = None) -> None:
        """Records that the session read or wrote this version."""
        key = _key(session_id, path)
        self._seen[key] = _SeenVersion(stamp or Stamp.of(path.stat()), clock.now_ms())
        self._seen.move_to_end(key)
        while len(self._seen) > self._capacity:
            self._seen.popitem(last=False)

    def check(self, session_id: str, path: Path, stamp: Stamp | None = None) -> None:
        """Raises ToolError if the session has not read the file, or the file has changed since."""
        if self._check_disabled:
            return
        seen = self._seen.get(_key(session_id, path))
        if seen is None:
            raise ToolError(f"You must read file {path} before overwriting it: use the read tool first.")
        now = stamp or Stamp.of(path.stat())
        if now != seen.stamp:
            raise ToolError(
                f"File {path} has been modified since it was last read.\n"
                f"Modified: {clock.iso_utc(now.mtime_ns // 1_000_000)}\nLast read: {clock.iso_utc(seen.at_ms)}\n"
                "Read it again before changing it."
            )


def _key(session_id: str, path: Path) -> tuple[str, str]:
    return session_id, os.path.realpath(path)
