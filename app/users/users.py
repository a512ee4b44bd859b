"""The stored users. `opensession user` writes them, servers read them again each second."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import orjson

from app.record.engine import Database
from app.record.repositories import account_rows, webhook_rows
from app.record.statements import statements
from app.users.principal import Principal, Role
from app.util import clock

FRESH_SECONDS = 1.0
"""How long a server uses the users that it has read: then a change made elsewhere counts."""
ADDED_SECONDS = 0.05
"""The same for a user whom it does not know."""


@dataclass(frozen=True, slots=True)
class User:
    """`created` in epoch milliseconds. `max_cost` (dollars) and `max_tokens` are for a day, None: the server's settings."""

    name: str
    role: Role
    roots: tuple[str, ...] = ()
    created: int = 0
    max_cost: float | None = None
    max_tokens: int | None = None

    def principal(self, *, read_only: bool = False) -> Principal:
        return Principal(self.name, self.role, read_only, self.roots)


class UserNameTaken(Exception):
    pass


class NoSuchUser(Exception):
    pass


class Users:
    def __init__(self, database: Database, *, has_identity_provider: bool = False) -> None:
        """`has_identity_provider`: whose users are not stored."""
        self._has_identity_provider = has_identity_provider
        self._database = database
        self._sql = statements(database.dialect)
        self._users: Mapping[str, User] = {}
        self._read_at = float("-inf")
        self.on_change: Callable[[Mapping[str, User]], None] = lambda _: None
        """Called with the users before it when another reading differs."""

    async def all(self) -> Mapping[str, User]:
        """All users by name, as of at most a second ago."""
        return await self._read(FRESH_SECONDS)

    async def _read(self, max_age_seconds: float) -> Mapping[str, User]:
        if time.monotonic() - self._read_at > max_age_seconds:
            began = time.monotonic()
            rows = await self._database.read(account_rows.users)
            before, self._users, self._read_at = self._users, {row.name: _user(row) for row in rows}, began
            if before != self._users:
                self.on_change(before)
        return self._users

    async def get(self, name: str) -> User | None:
        """None for an unknown user, who is looked for again: they may have been added just now, and use their token."""
        return (await self.all()).get(name) or (await self._read(ADDED_SECONDS)).get(name)

    def exist(self) -> bool:
        """Whether this server has users, as last read."""
        return self._has_identity_provider or bool(self._users)

    def roots(self) -> list[str]:
        """The roots of all users, as last read."""
        return [root for user in self._users.values() for root in user.roots]

    async def add(self, user: User) -> None:
        """Raises UserNameTaken."""
        await self._put(user, is_new=True)

    async def change(self, user: User) -> None:
        """Changes all but the name. Raises NoSuchUser."""
        await self._put(user, is_new=False)

    async def _put(self, user: User, *, is_new: bool) -> None:
        stored = {"role": user.role.value, "roots": orjson.dumps(user.roots).decode(), "created": clock.now_ms()}
        row = {**asdict(user), **stored}

        def put(connection: Any) -> None:
            is_stored = any(each.name == user.name for each in account_rows.users(connection))
            if is_stored == is_new:
                raise UserNameTaken(user.name) if is_new else NoSuchUser(user.name)
            connection.execute(self._sql.put_user, [row])

        await self._database.write(put)
        self._read_at = float("-inf")

    async def remove(self, name: str) -> bool:
        """Removes the user with their keys and webhooks. Their sessions stay, for admins to see. False for an unknown user."""

        def remove(connection: Any) -> bool:
            connection.execute(self._sql.delete_user_keys, [{"gone": name}])
            webhook_rows.remove_of(connection, name)
            return bool(connection.execute(self._sql.delete_user, [{"gone": name}]).rowcount)

        found = await self._database.write(remove)
        self._read_at = float("-inf")
        return found


def _user(row: Any) -> User:
    return User(row.name, Role(row.role), tuple(orjson.loads(row.roots)), row.created, row.max_cost, row.max_tokens)
