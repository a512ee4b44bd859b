"""A part whose output was pruned has a short body for the model's history beside the whole one."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("part", sa.Column("live_body", sa.Text(), nullable=True))


def downgrade() -> None:
    op.drop_column("part", "live_body")
