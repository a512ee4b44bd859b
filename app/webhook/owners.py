"""Whose webhook it is decides what it is sent: what its owner may see now, looked up with each message."""

from collections.abc import Callable
from typing import Any

from app.bus.base import Audience, Event
from app.bus.event_id import EventId
from app.users.event_cursors import EventCursors
from app.users.oidc import PREFIX as OIDC_PREFIX
from app.users.principal import OPERATOR, Principal, Role
from app.users.users import Users


class WebhookEnds(Exception):
    """It is sent nothing more; the message says why. `removes`: it is deleted, not switched off."""

    def __init__(self, reason: str, *, removes: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.removes = removes


class WebhookOwners:
    def __init__(self, users: Users, cursors: EventCursors, admits: Callable[[Principal, str], bool]) -> None:
        """`admits`: whether a principal may work in a directory."""
        self._users = users
        self._cursors = cursors
        self._admits = admits

    async def find(self, name: str) -> Principal | None:
        """As of a second ago at most. One of an identity provider who is not stored counts as a member: only a token of theirs
        could say more."""
        if name == OPERATOR.name:
            return OPERATOR
        if user := await self._users.get(name):
            return user.principal()
        return Principal(name, Role.MEMBER) if name.startswith(OIDC_PREFIX) else None

    async def require(self, webhook: Any) -> Principal:
        """Raises WebhookEnds where the owner is gone, or has another role than the webhook was switched on with."""
        principal = await self.find(webhook.owner)
        if principal is None:
            raise WebhookEnds("Its owner was removed.")
        if principal.role.value != webhook.role:
            raise WebhookEnds(f"The role of its owner was changed from {webhook.role} to {principal.role.value}.")
        return principal

    def may_hear(self, principal: Principal, event: Event) -> bool:
        if event.steers:
            return event.owner == principal.name
        if principal.may_see_all:
            return True
        cursors = self._cursors.for_user(principal.name)
        return Audience(principal.name, lambda path: self._admits(principal, path), cursors).receives(event)

    def event_id(self, principal: Principal, event_id: EventId) -> bytes:
        """As on the principal's event streams."""
        return event_id.wire(None if principal.may_see_all else self._cursors.for_user(principal.name))
