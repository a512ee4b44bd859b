"""Share links: read-only access to a session for everyone with the link, until the session is unshared or deleted.

The id in the link is the only secret and cannot be guessed.
"""

import re
import secrets
from collections.abc import AsyncIterator
from typing import ClassVar

from app.config.flags import Flags
from app.project.location import Location
from app.schema.config import Config
from app.schema.errors import NotFound, ServiceError
from app.schema.session import Session, Share
from app.session.shared_conversation import SharedBody, SharedConversations
from app.session.store import Store
from app.storage.repositories import session_rows

_ID_BYTES = 20
_ID = re.compile(r"[0-9a-f]{40}")


class SharingDisabled(ServiceError):
    status: ClassVar[int] = 403
    name: ClassVar[str] = "SharingDisabledError"

    def __init__(self) -> None:
        super().__init__('Sharing is turned off here, by `"share": "disabled"` in opencode.json or by OPENCODE_DISABLE_SHARE.')


def may_share(config: Config, flags: Flags) -> bool:
    return config.share != "disabled" and not flags.disable_share


def shares_automatically(config: Config, flags: Flags) -> bool:
    """Whether new sessions are shared automatically."""
    return may_share(config, flags) and (config.share == "auto" or flags.auto_share)


class Shares:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._conversations = SharedConversations(store)

    async def share(self, location: Location, session_id: str, base: str) -> Session:
        """Creates a link below the URL `base`, or returns the existing one. Raises NotFound."""
        async with self._store.lock(session_id):
            session = await self._store.session(session_id)
            share_id = await self._store.query(session_rows.share_of, session_id) or secrets.token_hex(_ID_BYTES)
            shared = session.model_copy(update={"share": Share(url=f"{base}/s/{share_id}")})
            if shared != session:
                change = self._store.change(session_id, location.directory)
                change.put_share(share_id)
                change.update_session(shared)
                await self._store.commit(change)
            return shared

    async def unshare(self, location: Location, session_id: str) -> Session:
        """Invalidates the link, if there is one. Raises NotFound."""
        async with self._store.lock(session_id):
            session = await self._store.session(session_id)
            if session.share is None:
                return session
            private = session.model_copy(update={"share": None})
            change = self._store.change(session_id, location.directory)
            change.delete_share()
            change.update_session(private)
            await self._store.commit(change)
            return private

    async def is_shared(self, share_id: str) -> bool:
        return _ID.fullmatch(share_id) is not None and await self._store.query(session_rows.shared_session, share_id) is not None

    async def visit(self, share_id: str) -> SharedBody:
        """Raises NotFound, with the same message for every unknown id."""
        found = await self._conversations.get(share_id) if _ID.fullmatch(share_id) else None
        if found is None:
            raise NotFound("Nothing is shared here: the link is wrong, or the session is no longer shared.")
        return found

    def chunks(self, body: SharedBody) -> AsyncIterator[bytes]:
        return self._conversations.chunks(body)
