"""The limit on the database space of a project's sessions."""

import asyncio
import time
from dataclasses import dataclass

from app.schema.errors import ServiceError
from app.session.store import Store
from app.storage.repositories import directory_rows
from app.storage.server_facts import database_bytes

_RECHECK_SECONDS = 10.0
"""How long a check stays valid while the whole database is smaller than a tenth of the limit."""


class ProjectFull(ServiceError):
    status = 507
    name = "StorageQuotaError"

    def __init__(self, used: int, max_bytes: int) -> None:
        super().__init__(
            f"The sessions of this project take {used} bytes, and {max_bytes} are allowed (OPENSESSION_MAX_PROJECT_BYTES). "
            "Nothing was stored: delete sessions of the project, or raise the limit."
        )


@dataclass(frozen=True, slots=True)
class _Measured:
    used: int
    database: int


class ProjectQuota:
    """Measuring a project reads all of it, so it is postponed until the database has grown enough to matter."""

    def __init__(self, store: Store, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes
        self._measured: dict[str, _Measured] = {}
        self._unchecked_until = float("-inf")
        self._checking = asyncio.Lock()

    async def require_room(self, project_id: str) -> None:
        """Raises ProjectFull."""
        async with self._checking:
            # A caller that waited here uses the result of the check it waited for.
            if time.monotonic() >= self._unchecked_until:
                await self._check(project_id)

    async def _check(self, project_id: str) -> None:
        database = await self._store.query(database_bytes)
        if database < self._max_bytes / 10:
            self._unchecked_until = time.monotonic() + _RECHECK_SECONDS
        if database < self._max_bytes or self._has_room(self._measured.get(project_id), database):
            return
        used = await self._store.query(directory_rows.project_bytes, project_id)
        self._measured[project_id] = _Measured(used, database)
        if used >= self._max_bytes:
            raise ProjectFull(used, self._max_bytes)

    def _has_room(self, measured: _Measured | None, database: int) -> bool:
        """Assumes that everything stored since the measurement belongs to this project."""
        if measured is None or database < measured.database:
            return False
        return measured.used + (database - measured.database) < self._max_bytes
