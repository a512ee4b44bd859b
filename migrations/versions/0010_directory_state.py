"""What servers of one database tell each other about directories, and the tokens of event streams."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "directory_state",
        sa.Column("directory", sa.String(), primary_key=True, nullable=False),
        sa.Column("name", sa.String(), primary_key=True, nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("server", sa.String(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "event_token",
        sa.Column("hash", sa.String(), primary_key=True, nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
    )


def downgrade() -> None:
    op.drop_table("event_token")
    op.drop_table("directory_state")
