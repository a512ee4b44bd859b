"""A session remembers what its stored diff was computed from."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("session", sa.Column("diff_basis", sa.Text(), nullable=True))
    unknown = '["unknown","unknown","unknown"]'
    op.execute(f"UPDATE session SET diff_basis = '{unknown}' WHERE id IN (SELECT session_id FROM session_diff)")


def downgrade() -> None:
    op.drop_column("session", "diff_basis")
