"""The sessions that were imported from OpenCode, each with a hash of what was imported."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "imported_session",
        sa.Column("id", sa.String(), primary_key=True, nullable=False),
        sa.Column("fingerprint", sa.String(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("imported_session")
