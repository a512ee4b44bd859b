"""How much room the snapshots of a checkout may take."""

import time

from app.snapshot.errors import SnapshotFailed
from app.snapshot.repository import KEPT_SECONDS, Repository

_MEASURED_FOR_SECONDS = 60
_LEAST_KEPT_SECONDS = 24 * 3600


class SnapshotQuota:
    """`most`: bytes; None for no limit."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._size = 0
        self._measured_at = float("-inf")

    @property
    def is_full(self) -> bool:
        return self._most is not None and self._size > self._most

    async def require_room(self, repository: Repository) -> None:
        """Raises SnapshotFailed when the snapshots took too much when they were last measured."""
        if self._most is None:
            return
        if time.monotonic() - self._measured_at > _MEASURED_FOR_SECONDS:
            self._size, self._measured_at = await repository.size(), time.monotonic()
        if self.is_full:
            raise SnapshotFailed(
                f"those of this checkout take {self._size} bytes, and {self._most} are allowed (OPENSESSION_MAX_SNAPSHOT_BYTES)"
            )

    async def make_room(self, repository: Repository) -> None:
        """Of too many the older half goes before its time, again and again, down to the last day's. The lock must be held."""
        kept: float = KEPT_SECONDS
        while self._most is not None and kept > _LEAST_KEPT_SECONDS and await repository.size() > self._most:
            kept = max(kept / 2, _LEAST_KEPT_SECONDS)
            await repository.collect(kept, is_alone=True)
        self._measured_at = float("-inf")
