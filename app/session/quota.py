"""How much room the sessions of a project may take in the database."""

import asyncio
import time
from dataclasses import dataclass

from app.schema.errors import ServiceError
from app.session.store import Store
from app.storage import queries

_ROOMY_SECONDS = 1.0
"""So long a database that takes less than a tenth of what one project may is not looked at again."""


class ProjectFull(ServiceError):
    status = 507
    name = "StorageQuotaError"

    def __init__(self, used: int, most: int) -> None:
        super().__init__(
            f"The sessions of this project take {used} bytes, and {most} are allowed (OPENSESSION_MAX_PROJECT_BYTES). "
            "Nothing was stored: delete sessions of it, or raise the limit."
        )


@dataclass(frozen=True, slots=True)
class _Measured:
    used: int
    database: int


class ProjectQuota:
    """To measure a project reads all of it, so that is put off for as long as the database has not grown enough to matter."""

    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most
        self._measured: dict[str, _Measured] = {}
        self._roomy_until = float("-inf")
        self._looking = asyncio.Lock()

    async def require_room(self, project_id: str) -> None:
        """Raises ProjectFull."""
        async with self._looking:
            # Who waited here finds what was measured meanwhile.
            if time.monotonic() >= self._roomy_until:
                await self._look(project_id)

    async def _look(self, project_id: str) -> None:
        database = await self._store.query(queries.database_bytes)
        if database < self._most / 10:
            self._roomy_until = time.monotonic() + _ROOMY_SECONDS
        if database < self._most or self._has_room(self._measured.get(project_id), database):
            return
        used = await self._store.query(queries.project_bytes, project_id)
        self._measured[project_id] = _Measured(used, database)
        if used >= self._most:
            raise ProjectFull(used, self._most)

    def _has_room(self, measured: _Measured | None, database: int) -> bool:
        """Whatever was stored since may be this project's."""
        if measured is None or database < measured.database:
            return False
        return measured.used + (database - measured.database) < self._most
