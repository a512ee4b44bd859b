"""A share has no secret besides the id in its link."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.drop_column("share", "secret")


def downgrade() -> None:
    op.add_column("share", sa.Column("secret", sa.String(), nullable=False, server_default=""))
