"""What a session's steps took in sum, with what is stored of earlier ones; its path; whether it is archived."""

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

AT_ONCE = 5_000
"""Rows that are read, then written: bounds the memory that a large database takes."""

MOST_TOKENS, MOST_DOLLARS = 10**12, 10**6
PIECES = {
    "cost": '{"cost":',
    "tokens_input": ',"tokens":{"input":',
    "tokens_output": ',"output":',
    "tokens_reasoning": ',"reasoning":',
    "tokens_cache_read": ',"cache":{"read":',
    "tokens_cache_write": ',"write":',
}
NO_SUMS = dict.fromkeys(PIECES, 0)
SESSION = sa.table(
    "session", *map(sa.column, ("seq", "id", "project_id", "directory", "body", "path", "archived", "head", *PIECES))
)
PART = sa.table("part", *map(sa.column, ("seq", "session_id", "type", "body")))
PROJECT = sa.table("project", *map(sa.column, ("id", "body")))


def upgrade() -> None:
    op.add_column("session", sa.Column("path", sa.Text(), nullable=True))
    op.add_column("session", sa.Column("archived", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.add_column("session", sa.Column("cost", sa.Float(), nullable=False, server_default=sa.text("0")))
    for name in list(PIECES)[1:]:
        op.add_column("session", sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0")))
    op.add_column("session", sa.Column("head", sa.Text(), nullable=False, server_default=_head(NO_SUMS)))
    op.create_index("session_by_update", "session", ["updated", "seq"])
    _fill_sums()
    _fill_from_bodies()


def downgrade() -> None:
    op.drop_index("session_by_update", "session")
    for name in ("head", *reversed(PIECES), "archived", "path"):
        op.drop_column("session", name)


def _head(sums: dict[str, Any]) -> str:
    return "".join(f"{piece}{sums[name]}" for name, piece in PIECES.items()) + "}},"


def _fill_sums() -> None:
    of_all: dict[str, dict[str, Any]] = {}
    for rows in _batches(PART, [PART.c.session_id], PART.c.type == "step-finish"):
        for row in rows:
            sums = of_all.setdefault(row.session_id, dict(NO_SUMS))
            for name, value in _taken(_parsed(row.body)).items():
                sums[name] += value
    rows = [{"of": session_id, **_rounded(sums)} for session_id, sums in of_all.items()]
    fill = sa.update(SESSION).where(SESSION.c.id == sa.bindparam("of"))
    fill = fill.values({name: sa.bindparam(f"new_{name}") for name in (*PIECES, "head")})
    for start in range(0, len(rows), AT_ONCE):
        op.get_bind().execute(fill, rows[start : start + AT_ONCE])


def _rounded(sums: dict[str, Any]) -> dict[str, Any]:
    sums = {**sums, "cost": round(sums["cost"], 12)}
    return {f"new_{name}": value for name, value in (*sums.items(), ("head", _head(sums)))}


def _taken(step: dict[str, Any]) -> dict[str, Any]:
    tokens = _of(step, "tokens")
    cache = _of(tokens, "cache")
    return {
        "cost": float(_number(step.get("cost"), MOST_DOLLARS)),
        **{f"tokens_{name}": int(_number(tokens.get(name), MOST_TOKENS)) for name in ("input", "output", "reasoning")},
        **{f"tokens_cache_{name}": int(_number(cache.get(name), MOST_TOKENS)) for name in ("read", "write")},
    }


def _fill_from_bodies() -> None:
    checkouts = {row.id: _checkouts(_parsed(row.body)) for row in op.get_bind().execute(sa.select(PROJECT))}
    fill = sa.update(SESSION).where(SESSION.c.seq == sa.bindparam("of"))
    fill = fill.values({name: sa.bindparam(f"new_{name}") for name in ("path", "archived", "body")})
    for rows in _batches(SESSION, [SESSION.c.project_id, SESSION.c.directory]):
        filled = [filled for row in rows if (filled := _filled(row, checkouts.get(row.project_id, [])))]
        if filled:
            op.get_bind().execute(fill, filled)


def _filled(row: Any, checkouts: list[str]) -> dict[str, Any] | None:
    """None for a damaged one, which stays as it is."""
    body = _parsed(row.body)
    if not body:
        return None
    body["path"] = path = _path(row.directory, checkouts)
    archived = bool(_of(body, "time").get("archived"))
    return {"of": row.seq, "new_path": path, "new_archived": archived, "new_body": json.dumps(body, separators=(",", ":"))}


def _checkouts(project: dict[str, Any]) -> list[str]:
    """All that are known of a project."""
    others = project.get("sandboxes")
    found = [project.get("worktree"), *(others if isinstance(others, list) else [])]
    return [each for each in found if isinstance(each, str)]


def _path(directory: str, checkouts: list[str]) -> str:
    """In the innermost checkout; in none, as outside of git, it is the path from the root."""
    within = [each for each in checkouts if Path(directory).is_relative_to(each)]
    path = os.path.relpath(directory, max(within, key=len, default="/"))
    return "" if path == os.curdir else path


def _batches(table: Any, columns: list[Any], *wanted: Any) -> Iterator[list[Any]]:
    """Rows in their order, their bodies as bytes in SQLite, whose texts may be damaged."""
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    body = sa.cast(table.c.body, sa.LargeBinary).label("body") if is_sqlite else table.c.body
    query = sa.select(table.c.seq, body, *columns).where(*wanted).order_by(table.c.seq).limit(AT_ONCE)
    after = 0
    while rows := list(op.get_bind().execute(query.where(table.c.seq > after))):
        yield rows
        after = rows[-1].seq


def _parsed(body: str | bytes) -> dict[str, Any]:
    """A damaged body says nothing."""
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _of(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _number(value: Any, most: int) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return 0
    return max(-most, min(value, most))
