"""With whose keys a user's sessions call models, and what is counted of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.schema.model import Auth
from app.users.budgets import Budgets
from app.users.keys import UserKeys
from app.users.principal import Principal, Role
from app.users.users import Users


@dataclass(frozen=True, slots=True)
class ModelAccount:
    """`keys` of the user; where there is none of a provider, and `shares_server_keys`, the server's."""

    principal: Principal
    keys: Mapping[str, Auth]
    shares_server_keys: bool
    budgets: Budgets


class ModelAccounts:
    def __init__(self, users: Users, keys: UserKeys, budgets: Budgets, shared_keys: bool | None) -> None:
        """`shared_keys`: whether users may call models with the server's keys; None: admins may."""
        self._users = users
        self._keys = keys
        self._budgets = budgets
        self._shared_keys = shared_keys

    async def for_user(self, name: str) -> ModelAccount:
        """Of a user who is not stored, as one of an identity provider may be: a member's."""
        user = await self._users.get(name)
        principal = user.principal() if user else Principal(name, Role.MEMBER)
        shares = principal.role is Role.ADMIN if self._shared_keys is None else self._shared_keys
        return ModelAccount(principal, await self._keys.for_user(name), shares, self._budgets)
