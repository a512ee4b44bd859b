"""Columns for what was searched for in JSON: the tree of a step's part, and that a session is being reverted."""

import json
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

AT_ONCE = 5_000
"""Rows that are read, then written: bounds the memory that a large database takes."""

PART = sa.table("part", sa.column("seq"), sa.column("type"), sa.column("body"), sa.column("snapshot"))
SESSION = sa.table("session", sa.column("seq"), sa.column("body"), sa.column("reverting"))


def upgrade() -> None:
    op.add_column("part", sa.Column("snapshot", sa.String(), nullable=True))
    op.add_column("session", sa.Column("reverting", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.drop_index("part_by_session", "part")
    op.drop_index("part_by_type", "part")
    _fill_snapshots()
    _fill_reverting()
    op.create_index("part_by_message", "part", ["session_id", "message_id", "seq"])
    _create_partial_index("part_patches", "part", ["session_id", "seq"], "type = 'patch'")
    _create_partial_index("part_snapshots", "part", ["session_id", "message_id", "type", "seq"], "snapshot IS NOT NULL")
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    _create_partial_index("session_reverting", "session", ["seq"], "reverting = 1" if is_sqlite else "reverting")


def downgrade() -> None:
    for index, table in (
        ("session_reverting", "session"),
        ("part_snapshots", "part"),
        ("part_patches", "part"),
        ("part_by_message", "part"),
    ):
        op.drop_index(index, table)
    op.drop_column("session", "reverting")
    op.drop_column("part", "snapshot")
    op.create_index("part_by_session", "part", ["session_id", "seq"])
    op.create_index("part_by_type", "part", ["session_id", "type", "seq"])


def _create_partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def _fill_snapshots() -> None:
    of_steps = PART.c.type.in_(["step-start", "step-finish"])
    fill = sa.update(PART).where(PART.c.seq == sa.bindparam("of")).values(snapshot=sa.bindparam("tree"))
    for rows in _batches(PART, of_steps):
        trees = [{"of": row.seq, "tree": tree} for row in rows if isinstance(tree := _parsed(row.body).get("snapshot"), str)]
        if trees:
            op.get_bind().execute(fill, trees)


def _fill_reverting() -> None:
    fill = sa.update(SESSION).where(SESSION.c.seq == sa.bindparam("of")).values(reverting=sa.true())
    for rows in _batches(SESSION, SESSION.c.body.contains('"unfinished":true', autoescape=True)):
        reverting = [{"of": row.seq} for row in rows if (_parsed(row.body).get("revert") or {}).get("unfinished") is True]
        if reverting:
            op.get_bind().execute(fill, reverting)


def _batches(table: Any, wanted: Any) -> Iterator[list[Any]]:
    """Rows in their order, their bodies as bytes in SQLite, whose texts may be damaged."""
    after = 0
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    body = sa.cast(table.c.body, sa.LargeBinary).label("body") if is_sqlite else table.c.body
    query = sa.select(table.c.seq, body).where(wanted).order_by(table.c.seq).limit(AT_ONCE)
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
