"""Users, their keys and what they used; the owner of each session and of the events of it.

Sessions and events from before belong to nobody: of the users, only admins and viewers see them."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("session", sa.Column("owner", sa.String(), server_default=sa.text("''"), nullable=False))
    owned = sa.text("owner <> ''")
    op.create_index("session_by_owner", "session", ["owner", "project_id", "seq"], sqlite_where=owned, postgresql_where=owned)
    op.add_column("event_journal", sa.Column("owner", sa.String(), nullable=True))
    op.execute("UPDATE event_journal SET owner = ''")
    op.add_column("event_token", sa.Column("principal", sa.Text(), server_default=sa.text("'{}'"), nullable=False))
    op.create_table(
        "user_account",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("roots", sa.Text(), nullable=False),
        sa.Column("created", sa.BigInteger(), nullable=False),
        sa.Column("max_cost", sa.Float(), nullable=True),
        sa.Column("max_tokens", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "user_key",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("provider_id", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", "provider_id"),
    )
    op.create_table(
        "user_usage",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("day", sa.String(), nullable=False),
        sa.Column("cost", sa.Float(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", "day"),
    )


def downgrade() -> None:
    for table in ("user_usage", "user_key", "user_account"):
        op.drop_table(table)
    op.drop_column("event_token", "principal")
    op.drop_column("event_journal", "owner")
    op.drop_index("session_by_owner", "session")
    op.drop_column("session", "owner")
