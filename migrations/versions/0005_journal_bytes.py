"""The journal knows how large its events are, so that it can be kept within a number of bytes without being read."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("event_journal", sa.Column("bytes", sa.Integer(), server_default="0", nullable=False))
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    op.execute(f"UPDATE event_journal SET bytes = {'length(CAST(payload AS BLOB))' if is_sqlite else 'octet_length(payload)'}")
    op.drop_index("event_by_time", "event_journal")
    op.create_index("event_by_time", "event_journal", ["time", "seq", "bytes"])


def downgrade() -> None:
    op.drop_index("event_by_time", "event_journal")
    op.create_index("event_by_time", "event_journal", ["time"])
    op.drop_column("event_journal", "bytes")
