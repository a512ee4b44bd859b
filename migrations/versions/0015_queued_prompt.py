"""Prompts that wait for a turn of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    sequence = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "queued_prompt",
        sa.Column("seq", sequence, primary_key=True, autoincrement=True),
        sa.Column("id", sa.String(), nullable=False, unique=True),
        sa.Column("session_id", sa.Text(), sa.ForeignKey("session.id", ondelete="CASCADE"), nullable=False),
        sa.Column("message_id", sa.String(), nullable=True),
        sa.Column("directory", sa.String(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("input_hash", sa.String(), nullable=False),
        sa.Column("input", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.UniqueConstraint("session_id", "message_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_queued_prompt_session_id", "queued_prompt", ["session_id"])


def downgrade() -> None:
    op.drop_table("queued_prompt")
