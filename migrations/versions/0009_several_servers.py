"""What servers of one database tell each other: the answer to a request, a session's status, the wish that its turn end.

The row of a lease stays when its run ends, so that its generation only grows: `owner` is empty then."""

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute(f"INSERT INTO counter (name, value) VALUES ('identity', {secrets.randbits(60)})")
    op.add_column("pending_ask", sa.Column("answer", sa.Text(), nullable=True))
    op.add_column("run_lease", sa.Column("directory", sa.Text(), nullable=True))
    op.add_column("run_lease", sa.Column("status", sa.Text(), nullable=True))
    op.add_column("run_lease", sa.Column("aborting", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("run_lease", sa.Column("takeovers", sa.Integer(), server_default="0", nullable=False))
    held = sa.text("owner <> ''")
    op.create_index("run_lease_held", "run_lease", ["session_id"], sqlite_where=held, postgresql_where=held)


def downgrade() -> None:
    op.execute("DELETE FROM counter WHERE name = 'identity'")
    op.execute("DELETE FROM run_lease WHERE owner = ''")
    op.drop_index("run_lease_held", "run_lease")
    for column in ("takeovers", "aborting", "status", "directory"):
        op.drop_column("run_lease", column)
    op.execute("DELETE FROM pending_ask WHERE answer IS NOT NULL")
    op.drop_column("pending_ask", "answer")
