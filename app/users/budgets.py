"""What a user's model calls may take a day (UTC). Checked before each call: those that run already may go beyond it."""

from dataclasses import dataclass
from datetime import UTC, datetime

from app.storage.engine import Database
from app.storage.repositories import account_rows
from app.storage.statements import statements
from app.users.users import Users
from app.util import clock


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
        if used is not None and (reached := _reached(limits, used.cost, used.tokens)):
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
    return datetime.fromtimestamp(clock.now_ms() / 1000, UTC).date().isoformat()


def _reached(limits: DayLimits, cost: float, tokens: int) -> str | None:
    if limits.cost is not None and cost >= limits.cost:
        return f"{cost:.2f} of {limits.cost:g} dollars"
    if limits.tokens is not None and tokens >= limits.tokens:
        return f"{tokens} of {limits.tokens} tokens"
    return None
