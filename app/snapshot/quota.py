"""The limit on the disk space of a checkout's snapshots."""

import time

from app.snapshot.errors import SnapshotFailed
from app.snapshot.repository import KEPT_SECONDS, Repository

_REMEASURE_SECONDS = 60
_MIN_KEPT_SECONDS = 24 * 3600


class SnapshotQuota:
    """`most`: bytes; None for no limit."""

    def __init__(self, max_bytes: int | None) -> None:
        self._max_bytes = max_bytes
        self._size = 0
        self._measured_at = float("-inf")

    @property
    def is_full(self) -> bool:
        return self._max_bytes is not None and self._size > self._max_bytes

    async def require_room(self, repository: Repository) -> None:
        """Raises SnapshotFailed if the snapshots were too large at the last measurement."""
        if self._max_bytes is None:
            return
        if time.monotonic() - self._measured_at > _REMEASURE_SECONDS:
            self._size, self._measured_at = await repository.size(), time.monotonic()
        if self.is_full:
            raise SnapshotFailed(
                f"those of this checkout take {self._size} bytes, and {self._max_bytes} are allowed "
                "(OPENSESSION_MAX_SNAPSHOT_BYTES)"
            )

    async def make_room(self, repository: Repository) -> None:
        """Deletes older snapshots until the rest fits, but keeps those of the last day. The caller holds the lock."""
        kept: float = KEPT_SECONDS
        while self._max_bytes is not None and kept > _MIN_KEPT_SECONDS and await repository.size() > self._max_bytes:
            kept = max(kept / 2, _MIN_KEPT_SECONDS)
            await repository.collect(kept, is_alone=True)
        self._measured_at = float("-inf")
