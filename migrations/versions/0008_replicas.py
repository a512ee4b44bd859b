"""The servers of one database, each with its heartbeat."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "replica",
        sa.Column("id", sa.String(), primary_key=True, nullable=False),
        sa.Column("started", sa.BigInteger(), nullable=False),
        sa.Column("heartbeat", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("address", sa.String(), nullable=False),
        sa.Column("volume", sa.String(), nullable=True),
        sa.Column("journal_lag", sa.BigInteger(), nullable=True),
    )


def downgrade() -> None:
    op.drop_table("replica")
