"""What searches look at: the texts of parts, and the index of them.

Nothing is filled here: a running server goes through the parts that there are from the newest to the oldest, in batches
(app/session/search_index.py); `unsearched_parts` says how far it is."""

import sqlalchemy as sa
from alembic import op

from app.storage.text_index import create_text_index, drop_text_index

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "part_text",
        sa.Column("part_seq", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=False, nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("time", sa.BigInteger(), nullable=False),
        sa.Column("indexed", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["part_seq"], ["part.seq"], ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("part_seq"),
    )
    op.create_index(
        "part_text_unindexed",
        "part_text",
        ["part_seq"],
        sqlite_where=sa.text("indexed = 0"),
        postgresql_where=sa.text("NOT indexed"),
    )
    op.create_index("part_text_facts", "part_text", ["part_seq", "time", "role", "kind"])
    create_text_index(op.get_bind())
    op.execute("INSERT INTO counter (name, value) SELECT 'unsearched_parts', coalesce(max(seq), 0) FROM part")
    op.create_index("session_by_directory", "session", ["directory", "owner"])


def downgrade() -> None:
    op.drop_index("session_by_directory", "session")
    op.execute("DELETE FROM counter WHERE name = 'unsearched_parts'")
    drop_text_index(op.get_bind())
    op.drop_table("part_text")
