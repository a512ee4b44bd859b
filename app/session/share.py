"""Sessions shown to whoever has their link, by this server itself: read-only, until they are unshared or deleted.

The link's id is all that a visitor needs and cannot be guessed. There is no other secret.
"""

import re
import secrets
from collections.abc import AsyncIterator
from typing import ClassVar

from app.config.flags import Flags
from app.project.place import Place
from app.schema.config import Config
from app.schema.errors import NotFound, ServiceError
from app.schema.session import Session, Share
from app.session.shared_conversation import SharedBody, SharedConversations
from app.session.store import Store
from app.storage import queries

_ID_BYTES = 20
_ID = re.compile(r"[0-9a-f]{40}")


class SharingDisabled(ServiceError):
    status: ClassVar[int] = 403
    name: ClassVar[str] = "SharingDisabledError"

    def __init__(self) -> None:
        super().__init__('Sharing is turned off here, by `"share": "disabled"` in opencode.json or by OPENCODE_DISABLE_SHARE.')


def may_share(config: Config, flags: Flags) -> bool:
    return config.share != "disabled" and not flags.disable_share


def shares_by_itself(config: Config, flags: Flags) -> bool:
    """Whether new sessions are shared without being asked to."""
    return may_share(config, flags) and (config.share == "auto" or flags.auto_share)


class Shares:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._conversations = SharedConversations(store)

    async def share(self, place: Place, session_id: str, base: str) -> Session:
        """Give a session a link below `base`, or return the one it has. Raises NotFound."""
        async with self._store.lock(session_id):
            session = await self._store.session(session_id)
            share_id = await self._store.query(queries.share_of, session_id) or secrets.token_hex(_ID_BYTES)
            shared = session.model_copy(update={"share": Share(url=f"{base}/s/{share_id}")})
            if shared != session:
                change = self._store.change(session_id, place.directory)
                change.put_share(share_id)
                change.update_session(shared)
                await self._store.commit(change)
            return shared

    async def unshare(self, place: Place, session_id: str) -> Session:
        """From now on the link finds nothing. Raises NotFound, also for a session that is not shared."""
        async with self._store.lock(session_id):
            session = await self._store.session(session_id)
            if session.share is None:
                raise NotFound(f"Session {session_id} is not shared")
            private = session.model_copy(update={"share": None})
            change = self._store.change(session_id, place.directory)
            change.delete_share()
            change.update_session(private)
            await self._store.commit(change)
            return private

    async def is_shared(self, share_id: str) -> bool:
        return _ID.fullmatch(share_id) is not None and await self._store.query(queries.shared_session, share_id) is not None

    async def visit(self, share_id: str) -> SharedBody:
        """Raises NotFound, in the same words for every id that is not in use."""
        found = await self._conversations.get(share_id) if _ID.fullmatch(share_id) else None
        if found is None:
            raise NotFound("There is nothing shared here: the link is wrong, or it was taken back.")
        return found

    def pieces(self, body: SharedBody) -> AsyncIterator[bytes]:
        return self._conversations.pieces(body)
