"""What searches look at: the texts of parts, and the index of them.

Nothing is filled here: a running server goes through the parts that there are from the newest to the oldest, in batches
(app/sessions/search_index.py); `unsearched_parts` says how far it is."""

import logging

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

log = logging.getLogger(__name__)

TEXT = "char(2) || substr({row}.role, 1, 1) || substr({row}.kind, 1, 1) || char(10) || {row}.text"
PUT = f"INSERT INTO part_text_fts(rowid, text) VALUES (new.part_seq, {TEXT.format(row='new')});"
REMOVE = f"INSERT INTO part_text_fts(part_text_fts, rowid, text) VALUES ('delete', old.part_seq, {TEXT.format(row='old')});"
TRIGGERS = {
    "part_text_index": f"UPDATE ON part_text WHEN new.indexed AND NOT old.indexed BEGIN {PUT} END",
    "part_text_unindex": f"UPDATE ON part_text WHEN old.indexed AND NOT new.indexed BEGIN {REMOVE} END",
    "part_text_delete": f"DELETE ON part_text WHEN old.indexed BEGIN {REMOVE} END",
}
IN_SQLITE = (
    "CREATE VIRTUAL TABLE part_text_fts USING "
    "fts5(text, content='', columnsize=0, detail=none, tokenize='trigram case_sensitive 1')",
    *(f"CREATE TRIGGER {name} AFTER {does}" for name, does in TRIGGERS.items()),
)
IN_POSTGRESQL = (
    "CREATE EXTENSION IF NOT EXISTS pg_trgm",
    "CREATE INDEX part_text_trigrams ON part_text USING gin (text gin_trgm_ops) WITH (fastupdate = off) WHERE indexed",
)


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
    create_index()
    op.execute("INSERT INTO counter (name, value) SELECT 'unsearched_parts', coalesce(max(seq), 0) FROM part")
    op.create_index("session_by_directory", "session", ["directory", "owner"])


def downgrade() -> None:
    op.drop_index("session_by_directory", "session")
    op.execute("DELETE FROM counter WHERE name = 'unsearched_parts'")
    for trigger in TRIGGERS if op.get_bind().dialect.name == "sqlite" else ():
        op.execute(f"DROP TRIGGER IF EXISTS {trigger}")
    op.execute("DROP TABLE IF EXISTS part_text_fts")
    op.drop_table("part_text")


def create_index() -> None:
    """Where FTS5 or pg_trgm is missing, searches read the texts."""
    try:
        with op.get_bind().begin_nested():
            for statement in IN_SQLITE if op.get_bind().dialect.name == "sqlite" else IN_POSTGRESQL:
                op.execute(sa.text(statement))
    except sa.exc.DBAPIError as error:
        log.warning("searches in messages have no index: %s", error.orig)
