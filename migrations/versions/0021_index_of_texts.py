"""The index of searches takes a text in its commit: `indexed` goes, and with it the rows that were to be indexed later.

In SQLite the index stays as it is; a running server goes through the parts of what was not in it yet, as after 0013. PostgreSQL's
was of the indexed rows alone: where there are any, the server makes another beside its work.
"""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

TEXT = "char(2) || substr({row}.role, 1, 1) || substr({row}.kind, 1, 1) || char(10) || {row}.text"
PUT = f"INSERT INTO part_text_fts(rowid, text) VALUES (new.part_seq, {TEXT.format(row='new')});"
REMOVE = f"INSERT INTO part_text_fts(part_text_fts, rowid, text) VALUES ('delete', old.part_seq, {TEXT.format(row='old')});"
OLD_TRIGGERS = {
    "part_text_index": f"UPDATE ON part_text WHEN new.indexed AND NOT old.indexed BEGIN {PUT} END",
    "part_text_unindex": f"UPDATE ON part_text WHEN old.indexed AND NOT new.indexed BEGIN {REMOVE} END",
    "part_text_delete": f"DELETE ON part_text WHEN old.indexed BEGIN {REMOVE} END",
}
NEW_TRIGGERS = {
    "part_text_put": f"INSERT ON part_text BEGIN {PUT} END",
    "part_text_change": f"UPDATE OF role, kind, text ON part_text BEGIN {REMOVE} {PUT} END",
    "part_text_delete": f"DELETE ON part_text BEGIN {REMOVE} END",
}
UNSEARCHED = """
UPDATE counter SET value = (SELECT max(part_seq) FROM part_text WHERE indexed = 0)
WHERE name = 'unsearched_parts' AND value < (SELECT max(part_seq) FROM part_text WHERE indexed = 0)
"""
INDEX = "CREATE INDEX part_text_trigrams ON part_text USING gin (text gin_trgm_ops)"


def upgrade() -> None:
    if is_sqlite():
        op.execute(UNSEARCHED)
        op.execute("DELETE FROM part_text WHERE indexed = 0")
        replace_triggers(OLD_TRIGGERS, {})
    had_trigrams = has_trigrams()
    op.drop_index("part_text_unindexed", "part_text")
    op.drop_column("part_text", "indexed")
    if is_sqlite():
        replace_triggers({}, NEW_TRIGGERS)
    elif had_trigrams and not op.get_bind().scalar(sa.text("SELECT EXISTS (SELECT 1 FROM part_text)")):
        op.execute(INDEX)


def downgrade() -> None:
    """What was in the index of SQLite stays in it; that of PostgreSQL is filled again."""
    if is_sqlite():
        replace_triggers(NEW_TRIGGERS, {})
    op.execute("DROP INDEX IF EXISTS part_text_trigrams")
    op.add_column("part_text", sa.Column("indexed", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.create_index(
        "part_text_unindexed",
        "part_text",
        ["part_seq"],
        sqlite_where=sa.text("indexed = 0"),
        postgresql_where=sa.text("NOT indexed"),
    )
    if is_sqlite():
        op.execute("UPDATE part_text SET indexed = 1")
        replace_triggers({}, OLD_TRIGGERS)
    else:
        op.execute(f"{INDEX} WITH (fastupdate = off) WHERE indexed")


def replace_triggers(gone: dict[str, str], new: dict[str, str]) -> None:
    """Where SQLite has no FTS5 there are none."""
    for name in gone:
        op.execute(f"DROP TRIGGER IF EXISTS {name}")
    if op.get_bind().scalar(sa.text("SELECT count(*) FROM sqlite_master WHERE name = 'part_text_fts'")):
        for name, does in new.items():
            op.execute(sa.text(f"CREATE TRIGGER {name} AFTER {does}"))


def has_trigrams() -> bool:
    return not is_sqlite() and bool(op.get_bind().scalar(sa.text("SELECT to_regclass('part_text_trigrams') IS NOT NULL")))


def is_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"
