"""The user's own configuration, which holds in all directories. They read it anew when its files change."""

import asyncio
from typing import Any

from app.config.loader import load_global
from app.config.patch import patch_global
from app.schema.config import Config
from app.storage.postgres import Locks


class GlobalConfig:
    def __init__(self, locks: Locks) -> None:
        self._locks = locks

    async def get(self) -> Config:
        """Raises ConfigJsonError, ConfigInvalidError."""
        return await asyncio.to_thread(load_global)

    async def patch(self, update: dict[str, Any]) -> Config:
        """Merges a change into the user's file, one change at a time. Raises as `patch_global` does."""
        async with self._locks.lock("configuration of all directories"):
            await asyncio.to_thread(patch_global, update)
        return await self.get()
