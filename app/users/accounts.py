"""Whose keys a user's sessions call models with, and how much these calls may take a day (UTC). Keys are encrypted in the
database with the server's secret. Budgets are checked before each call: running calls may exceed them."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from app.record.engine import Database
from app.record.repositories import account_rows
from app.record.statements import statements
from app.schema.model import Auth
from app.users.oidc import PREFIX as OIDC_PREFIX
from app.users.principal import Principal, Role
from app.users.tokens import ServerSecret
from app.users.users import Users
from app.util import clock

log = logging.getLogger(__name__)

_AUTH: TypeAdapter[Auth] = TypeAdapter(Auth)


class UserKeys:
    def __init__(self, database: Database, secret: ServerSecret) -> None:
        self._database = database
        self._sql = statements(database.dialect)
        self._secret = secret

    async def for_user(self, name: str) -> dict[str, Auth]:
        """The user's keys, by provider; without those of another secret, which have to be stored again."""
        rows = await self._database.read(lambda connection: account_rows.user_keys(connection, name))
        if not rows:
            return {}
        from cryptography.fernet import InvalidToken

        box, keys = self._secret.box(), dict[str, Auth]()
        for row in rows:
            try:
                keys[row.provider_id] = _AUTH.validate_json(box.decrypt(row.body))
            except InvalidToken:
                log.error("the key of %s for %s is encrypted with a secret that this server does not have", name, row.provider_id)
        return keys

    async def put(self, name: str, provider_id: str, auth: Auth) -> None:
        body = self._secret.box().encrypt(_AUTH.dump_json(auth, by_alias=True, exclude_none=True)).decode()
        await self._write(self._sql.put_user_key, {"name": name, "provider_id": provider_id, "body": body})

    async def remove(self, name: str, provider_id: str) -> None:
        await self._write(self._sql.delete_user_key, {"gone": name, "gone_provider": provider_id})

    async def _write(self, statement: Any, row: dict[str, str]) -> None:
        await self._database.write(lambda connection: connection.execute(statement, [row]))

    async def encrypt_anew(self) -> int:
        """Encrypts all keys with the first of the server's secrets; returns their number. Raises InvalidToken, having changed
        nothing."""

        def encrypt(connection: Any) -> int:
            box, rows = self._secret.box(), account_rows.user_keys(connection)
            anew = [{**row._asdict(), "body": box.rotate(row.body.encode()).decode()} for row in rows]
            if anew:
                connection.execute(self._sql.put_user_key, anew)
            return len(anew)

        return await self._database.write(encrypt)


class BudgetUsedUp(Exception):
    """The message is for the user."""


@dataclass(frozen=True, slots=True)
class DayLimits:
    """`cost` in dollars; None: no limit."""

    cost: float | None = None
    tokens: int | None = None


class Budgets:
    def __init__(self, database: Database, users: Users, defaults: DayLimits) -> None:
        """`defaults` are for users without limits of their own."""
        self._database = database
        self._sql = statements(database.dialect)
        self._users = users
        self._defaults = defaults

    async def require(self, name: str) -> None:
        """Raises BudgetUsedUp."""
        limits = await self._limits(name)
        if limits == DayLimits():
            return
        used = await self._database.read(lambda connection: account_rows.usage(connection, name, today()))
        if reached := _reached(limits, used.cost if used else 0.0, used.tokens if used else 0):
            raise BudgetUsedUp(f"The daily budget of {name} is used up: {reached}. The next day begins at 00:00 UTC.")

    async def _limits(self, name: str) -> DayLimits:
        user, defaults = await self._users.get(name), self._defaults
        if user is None:
            return defaults
        return DayLimits(
            defaults.cost if user.max_cost is None else user.max_cost,
            defaults.tokens if user.max_tokens is None else user.max_tokens,
        )

    async def add(self, name: str, cost: float, tokens: int) -> None:
        row = {"name": name, "day": today(), "cost": cost, "tokens": tokens}
        await self._database.write(lambda connection: connection.execute(self._sql.add_usage, [row]))


def today() -> str:
    return clock.iso_utc(clock.now_ms())[:10]


def _reached(limits: DayLimits, cost: float, tokens: int) -> str | None:
    if limits.cost is not None and cost >= limits.cost:
        return f"{cost:.2f} of {limits.cost:g} dollars"
    if limits.tokens is not None and tokens >= limits.tokens:
        return f"{tokens} of {limits.tokens} tokens"
    return None


@dataclass(frozen=True, slots=True)
class ModelAccount:
    """`keys`: the user's; if they have none of a provider, and `shares_server_keys`, the server's key is used."""

    principal: Principal
    keys: Mapping[str, Auth]
    shares_server_keys: bool
    budgets: Budgets


class ModelAccounts:
    def __init__(self, users: Users, keys: UserKeys, budgets: Budgets, shared_keys: bool | None) -> None:
        """`shared_keys`: whether users may call models with the server's keys; None: only admins may."""
        self._users = users
        self._keys = keys
        self._budgets = budgets
        self._shared_keys = shared_keys

    async def may_work(self, name: str) -> bool:
        """False for a user who was removed, or may only read."""
        user = await self._users.get(name)
        return user.principal().may_write if user else name.startswith(OIDC_PREFIX)

    async def for_user(self, name: str) -> ModelAccount:
        """A user who is not stored, as one of an identity provider may be, gets a member's account."""
        user = await self._users.get(name)
        principal = user.principal() if user else Principal(name, Role.MEMBER)
        shares = principal.role is Role.ADMIN if self._shared_keys is None else self._shared_keys
        return ModelAccount(principal, await self._keys.for_user(name), shares, self._budgets)
