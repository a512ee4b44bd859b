"""The head of a session's JSON: what its steps took in sum. Steps add to it while others change the rest, the `body`.

The sums are columns, and `head` is the same as text: a list of 5,000 sessions takes it as it is.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Float, Numeric, Text, cast, func, literal_column

from app.storage.tables import SESSION, SUM_PIECES, SUMS_END

SESSION_JSON: ColumnElement[str] = (SESSION.c.head + func.substr(SESSION.c.body, 2)).label("body")
"""The whole of a session; valid only if what is stored as its body is."""


def head(sums: Mapping[str, Any]) -> str:
    return _HEAD % tuple(sums[name] for name in SUM_PIECES)


_HEAD = "".join(f"{piece}%s" for piece in SUM_PIECES.values()) + SUMS_END


def with_added(amounts: Mapping[str, ColumnElement[Any]]) -> dict[str, ColumnElement[Any]]:
    """The columns' new values."""
    sums: dict[str, ColumnElement[Any]] = {name: SESSION.c[name] + amounts[name] for name in SUM_PIECES}
    sums["cost"] = cast(func.round(cast(sums["cost"], Numeric), 12), Float)
    return {**sums, "head": _rendered(sums)}


def _rendered(sums: Mapping[str, ColumnElement[Any]]) -> ColumnElement[str]:
    rendered: ColumnElement[Any] = _text("")
    for name, piece in SUM_PIECES.items():
        rendered = rendered + _text(piece) + cast(sums[name], Text)
    return rendered + _text(SUMS_END)


def _text(value: str) -> ColumnElement[str]:
    """In the statement itself: PostgreSQL knows no type of a bound one."""
    return literal_column(f"'{value}'", Text)
