"""A session has its sums as columns alone; their JSON is made when it is read."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

PIECES = {
    "cost": '{"cost":',
    "tokens_input": ',"tokens":{"input":',
    "tokens_output": ',"output":',
    "tokens_reasoning": ',"reasoning":',
    "tokens_cache_read": ',"cache":{"read":',
    "tokens_cache_write": ',"write":',
}


def upgrade() -> None:
    op.drop_column("session", "head")


def downgrade() -> None:
    nothing = "".join(f"{piece}0" for piece in PIECES.values()) + "}},"
    op.add_column("session", sa.Column("head", sa.Text(), nullable=False, server_default=nothing))
    session = sa.table("session", *map(sa.column, ("head", *PIECES)))
    head: sa.ColumnElement[str] = sa.literal("", sa.Text)
    for name, piece in PIECES.items():
        head = head + sa.literal(piece, sa.Text) + sa.cast(session.c[name], sa.Text)
    op.execute(sa.update(session).values(head=head + sa.literal("}},", sa.Text)))
