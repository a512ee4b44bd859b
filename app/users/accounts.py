"""With whose keys a user's sessions call models, and what is counted of it."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.schema.model import Auth
from app.users.budgets import Budgets
from app.users.keys import UserKeys
from app.users.principal import Role
from app.users.users import Users


@dataclass(frozen=True, slots=True)
class ModelAccount:
    """`keys` of the user; where there is none of a provider, and `shares_server_keys`, the server's."""

    name: str
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

    async def of(self, name: str) -> ModelAccount:
        return ModelAccount(name, await self._keys.of(name), await self._shares(name), self._budgets)

    async def _shares(self, name: str) -> bool:
        if self._shared_keys is not None:
            return self._shared_keys
        user = await self._users.get(name)
        return user is not None and user.role is Role.ADMIN
