"""Users, their keys, and their usage."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, select

from app.record.tables import STEP_USAGE, USAGE, USER, USER_KEY


def users(connection: Connection) -> Sequence[Row[Any]]:
    return connection.execute(select(USER).order_by(USER.c.created, USER.c.name)).all()


def user_keys(connection: Connection, name: str | None = None) -> Sequence[Row[Any]]:
    """The encrypted keys of one user or of all."""
    query = select(USER_KEY).order_by(USER_KEY.c.name, USER_KEY.c.provider_id)
    return connection.execute(query if name is None else query.where(USER_KEY.c.name == name)).all()


def usage(connection: Connection, name: str, day: str) -> Row[Any] | None:
    return connection.execute(select(USAGE).where(USAGE.c.name == name, USAGE.c.day == day)).one_or_none()


DAY_MS = 86_400_000
_USAGE_GROUPS: dict[str, tuple[ColumnElement[Any], ...]] = {
    "model": (STEP_USAGE.c.provider_id, STEP_USAGE.c.model_id),
    "provider": (STEP_USAGE.c.provider_id,),
    "day": (STEP_USAGE.c.time // DAY_MS,),
    "session": (STEP_USAGE.c.session_id,),
    "directory": (STEP_USAGE.c.directory,),
    "agent": (STEP_USAGE.c.agent,),
}
_USED = [
    func.coalesce(func.sum(STEP_USAGE.c[name]), 0).label(name)
    for name in ("input", "output", "reasoning", "cache_read", "cache_write", "cost", "turns", "tool_calls")
]


def used_in_groups(
    connection: Connection, group: str, since: int | None = None, until: int | None = None, owner: str | None = None
) -> list[tuple[tuple[Any, ...], Row[Any]]]:
    """Sums of the ledger by the values of a group, the dearest first. `since` (inclusive) and `until` (exclusive) in epoch
    milliseconds. `owner` None: of all owners."""
    keys = _USAGE_GROUPS[group]
    query: Select[Any] = select(*_USED, *keys).group_by(*keys).order_by(func.sum(STEP_USAGE.c.cost).desc(), *keys)
    if since is not None:
        query = query.where(STEP_USAGE.c.time >= since)
    if until is not None:
        query = query.where(STEP_USAGE.c.time < until)
    if owner is not None:
        query = query.where(STEP_USAGE.c.owner == owner)
    return [(tuple(row)[len(_USED) :], row) for row in connection.execute(query)]
